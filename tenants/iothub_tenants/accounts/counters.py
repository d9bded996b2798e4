"""The counters behind ids that are never issued twice: what each would issue next, in SQLite, MySQL, MariaDB and PostgreSQL.

Knows no row: a counter may stand far above the highest id that is left.
"""

from __future__ import annotations

import re

from sqlalchemy import Connection, Engine, text

from iothub_tenants.accounts.tables import metadata

COUNTED = tuple(
    table.name for table in metadata.sorted_tables if table.dialect_options["sqlite"].get("autoincrement", False)
)
_NEXT = re.compile(
    r"^\).* AUTO_INCREMENT=(\d+)", re.MULTILINE
)  # of MySQL and MariaDB; not there where nothing was issued


def carry_over(source: Connection, target: Engine) -> None:
    """Let every counter of the target go on where the source's stands."""
    for table in COUNTED:
        number = next_id(source, table)
        with target.begin() as connection:
            _set_next(connection, table, number)


def next_id(connection: Connection, table: str) -> int:
    """Return the id that the next row of a table would get."""
    kind = connection.dialect.name
    if kind == "sqlite":
        last = connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table}).scalar()
        return int(last or 0) + 1
    if kind == "postgresql":
        sequence = _sequence(connection, table)
        row = connection.execute(text(f"SELECT last_value, is_called FROM {sequence}")).one()  # noqa: S608  our own name
        return int(row.last_value) + int(row.is_called)
    made = str(
        connection.execute(text(f"SHOW CREATE TABLE `{table}`")).one()[1]
    )  # other tables' figures may be a day old
    found = _NEXT.search(made)
    return int(found[1]) if found else 1


def _set_next(connection: Connection, table: str, number: int) -> None:
    kind = connection.dialect.name
    if kind == "sqlite":
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table})
        values = {"name": table, "seq": number - 1}
        connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq)"), values)
    elif kind == "postgresql":
        values = {"name": _sequence(connection, table), "number": number}
        connection.execute(text("SELECT setval(CAST(:name AS regclass), :number, false)"), values)
    else:
        connection.execute(text(f"ALTER TABLE `{table}` AUTO_INCREMENT = {number:d}"))


def _sequence(connection: Connection, table: str) -> str:
    return str(connection.execute(text("SELECT pg_get_serial_sequence(:name, 'id')"), {"name": table}).scalar_one())
