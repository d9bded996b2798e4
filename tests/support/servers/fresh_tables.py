"""The accounts' tables on a server, before each test as `init` leaves them: what is in them goes, ids begin anew.

Knows no verb. Much quicker than making the tables for each test.
"""

from __future__ import annotations

from sqlalchemy import Connection, Table, text

from iothub.testing.clock import ManualClock
from iothub_tenants.accounts.database import open_engine
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.tables import metadata

SERVER_VARIABLE = "IOTHUB_TEST_ACCOUNTS_URL"
_AGAIN = {
    "mysql": "ALTER TABLE `{table}` AUTO_INCREMENT = {after}",
    "postgresql": "SELECT setval(pg_get_serial_sequence('{table}', 'id'), {after}, false)",
}


class FreshTables:
    """An empty database that was given its schema once. Used by one test at a time."""

    def __init__(self, url: str, pepper: bytes) -> None:
        self.url = url
        init_store(url, pepper=pepper, clock=ManualClock()).close()
        self._engine = open_engine(url)
        with self._engine.connect() as connection:
            self._first = {table.name: [row._asdict() for row in connection.execute(table.select())] for table in _ALL}

    def restore(self) -> str:
        """Bring the tables back to what they were at first, and return the url."""
        with self._engine.begin() as connection:
            self._empty(connection)
            for table in _ALL:
                if self._first[table.name]:
                    connection.execute(table.insert(), self._first[table.name])
        return self.url

    def _empty(self, connection: Connection) -> None:
        again = _AGAIN[connection.dialect.name]
        for table in reversed(_ALL):
            if connection.execute(table.delete()).rowcount and _is_counted(table):
                after = 1 + max((row["id"] for row in self._first[table.name]), default=0)
                connection.execute(text(again.format(table=table.name, after=after)))

    def close(self) -> None:
        self._engine.dispose()


def _is_counted(table: Table) -> bool:
    return table.autoincrement_column is not None


_ALL = metadata.sorted_tables
