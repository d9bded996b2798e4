"""Which schema an accounts database has, whether this program may use it, and how to bring it up to date.

Knows nothing of what the tables mean. Alembic is imported only when there is something to migrate: a command that just looks stays quick.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from iothub.base.errors import ConflictError

SCHEMA_VERSION = 15  # what this program writes: the newest file in versions/
COMPAT_VERSION = (
    14  # the oldest program that may still use a database of SCHEMA_VERSION: older ones cannot read changes of webhooks
)

_LOCK = 0x696F74687562  # a number of ours, among a database's advisory locks
_LOCK_S = 60
_MYSQL = ("mysql", "mariadb")
_COPYING = "copying"  # a row of schema_info while a copy into this database is not finished


class SchemaState(Enum):
    """What `check` found; a schema of the future that this program cannot use is an error, not a state."""

    FRESH = "fresh"  # no tables yet
    OLD = "old"
    CURRENT = "current"
    NEWER = "newer"  # of a later program, which says that this one may still use it


def revision(version: int) -> str:
    """The Alembic revision of a schema version: version 1 is "0001"."""
    return f"{version:04d}"


def check(engine: Engine) -> SchemaState:
    """Look at the database and say what it is.

    Raises:
        ConflictError: its schema is of a future that this program does not know.
    """
    with engine.connect() as connection:
        return _check(connection)


def version_of(engine: Engine) -> int | None:
    """Return the version of the database's own schema; None: it has none yet, or nobody has noted it."""
    with engine.connect() as connection:
        has_noted = "schema_info" in inspect(connection).get_table_names()
        return _stored(connection).get("version") if has_noted else None


def upgrade(engine: Engine) -> SchemaState:
    """Create or migrate all tables in one transaction (where the database allows one) and return what was found before.

    Idempotent. A run that is killed leaves the old schema (SQLite, PostgreSQL) or is completed by the next run (MySQL). Of two at once one waits.

    Raises:
        ConflictError: the schema is of the future; or another program changes it, and does not come to an end.
    """
    with engine.execution_options(iothub_write=True).connect() as connection:
        try:
            with connection.begin():
                _lock(connection)
                found = _check(connection)
                if found in (SchemaState.FRESH, SchemaState.OLD):
                    _migrate(connection)
                    _record(connection)
                return found
        finally:
            _unlock(connection)


def is_copying(engine: Engine) -> bool:
    """Return whether a copy into this database was begun and not finished: then `check` refuses it."""
    with engine.connect() as connection:
        tables = set(inspect(connection).get_table_names())
        return "schema_info" in tables and _COPYING in _stored(connection)


def mark_copying(connection: Connection) -> None:
    """Note that a copy begins, in the transaction of its first step."""
    connection.execute(text("INSERT INTO schema_info (name, value) VALUES (:name, 1)"), {"name": _COPYING})


def end_copying(engine: Engine) -> None:
    """The copy is whole."""
    with engine.execution_options(iothub_write=True).begin() as connection:
        connection.execute(text("DELETE FROM schema_info WHERE name = :name"), {"name": _COPYING})


def _lock(connection: Connection) -> None:
    """Keep others from changing the schema meanwhile. SQLite's transaction does so by itself."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    elif connection.dialect.name in _MYSQL:
        name = "CONCAT('iothub schema ', MD5(DATABASE()))"  # the server has one set of names for all databases
        if not connection.execute(text(f"SELECT GET_LOCK({name}, :wait_s)"), {"wait_s": _LOCK_S}).scalar():
            raise ConflictError(
                "another program is changing the accounts database's schema: try again when it has ended"
            )


def _unlock(connection: Connection) -> None:
    """After the commit, which MySQL's lock does not end with: it goes with its session."""
    if connection.dialect.name in _MYSQL:
        connection.invalidate()


def _check(connection: Connection) -> SchemaState:
    tables = set(inspect(connection).get_table_names())
    if "alembic_version" not in tables:
        return SchemaState.FRESH
    revisions = list(connection.execute(text("SELECT version_num FROM alembic_version")).scalars())
    stored = _stored(connection) if "schema_info" in tables else {}
    if _COPYING in stored:
        raise ConflictError(
            f"the accounts database {_name(connection)} is an unfinished copy: "
            "run the same `db copy --to-url-file` again, with the same data directory; it continues"
        )
    version = stored.get("version", 0)
    if stored.get("compat_version", 0) > SCHEMA_VERSION:
        raise _future(connection, f"version {version} (usable from version {stored['compat_version']})")
    if version > SCHEMA_VERSION:
        return SchemaState.NEWER
    unknown = [found for found in revisions if not _is_known(found)]
    if unknown:
        raise _future(connection, f"revision {unknown[0]}")
    return (
        SchemaState.CURRENT
        if version == SCHEMA_VERSION and revisions == [revision(SCHEMA_VERSION)]
        else SchemaState.OLD
    )


def _stored(connection: Connection) -> dict[str, int]:
    rows = connection.execute(text("SELECT name, value FROM schema_info"))
    return {row.name: row.value for row in rows}


def _is_known(found: str) -> bool:
    return found in {revision(version) for version in range(1, SCHEMA_VERSION + 1)}


def _future(connection: Connection, found: str) -> ConflictError:
    return ConflictError(
        f"the accounts database {_name(connection)} has schema {found}, this program knows version {SCHEMA_VERSION}: "
        "install the program that wrote it, or a later one"
    )


def _name(connection: Connection) -> str:
    url = connection.engine.url
    return Path(url.database or "").name if url.host is None else f"{url.database} at {url.host}"


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision(SCHEMA_VERSION))


def _record(connection: Connection) -> None:
    connection.execute(text("DELETE FROM schema_info"))
    connection.execute(
        text("INSERT INTO schema_info (name, value) VALUES ('version', :version), ('compat_version', :compat)"),
        {"version": SCHEMA_VERSION, "compat": COMPAT_VERSION},
    )
