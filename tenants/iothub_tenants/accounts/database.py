"""Opens a SQL engine for a url, with the settings that make SQLite a durable, shared file.

Knows no tables and no verbs.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool

from iothub.base.errors import BackendError, ConfigError, UnavailableError
from iothub_services.sqlite.database import is_on_read_only_system, keep_private, read_only_mode
from iothub_tenants.accounts.bounds import SqlBounds
from iothub_tenants.accounts.servers import server_engine

_BOUNDS = SqlBounds()
_URL_LIMIT = 4096  # characters of a url
_EXPECTED = (
    "expected for example sqlite:///accounts.db or mysql+pymysql://user:password@host/name; "
    "signs such as @, : and / in a password are written as %40, %3A and %2F"
)
_KINDS = {
    "sqlite": "sqlite",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "postgresql": "postgresql+psycopg",
}
BUSY_MS = 10_000  # how long a verb waits for another process's short transaction

# An execution option: the transaction will write, so SQLite takes its lock at the beginning instead of failing halfway.
WRITE = "iothub_write"


def sqlite_url(path: Path | str) -> str:
    """Return the url of an SQLite file."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def accounts_url(url_file: Path | None, file: Path) -> str:
    """Return where the accounts are: the text of `url_file` (the setting `sql.url_file`), else the SQLite file.

    Raises:
        UnavailableError: `url_file` cannot be read.
        ConfigError: It is empty, or no text.
    """
    if url_file is None:
        return sqlite_url(file)
    try:
        return read_url(url_file, f"sql.url_file {url_file}")
    except OSError as error:
        raise UnavailableError(f"sql.url_file {url_file}: cannot be read: {error.strerror}") from None


def read_url(file: Path, named: str) -> str:
    """Return the text of a file with a url, which errors call `named`. Raises OSError; ConfigError if it is empty, or no text."""
    try:
        url = file.read_text(encoding="utf-8")[:_URL_LIMIT].strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{named}: is not UTF-8 text, expected a SQLAlchemy URL") from None
    if not url:
        raise ConfigError(f"{named}: is empty, expected a SQLAlchemy URL")
    return url


def open_engine(url: str, bounds: SqlBounds = _BOUNDS) -> Engine:
    """Make an engine for SQLite, MySQL/MariaDB or PostgreSQL; nothing is connected yet. `bounds`: of a server.

    Raises:
        ConfigError: the url cannot be read, or its driver is not installed.
    """
    parsed = _parse(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        return server_engine(parsed, bounds)
    except ValueError as error:  # a number or a word that is none
        raise ConfigError(f"a parameter of the database url cannot be used: {error}") from error
    except ImportError as error:
        raise ConfigError(
            f"no driver for the database url: {error.name} is not installed; install iothub[mysql] or iothub[postgresql]"
        ) from error


def file_of(url: str) -> Path | None:
    """Return the file of an SQLite url; None for servers, for memory and for SQLite's own `file:` form. Raises ConfigError."""
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:") or "uri" in parsed.query:
        return None
    return Path(str(parsed.database))


def create_file(path: Path) -> None:
    """Make an empty database file that only its owner can read; it will hold credentials.

    Raises:
        BackendError: the file cannot be made.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise BackendError(f"{path} cannot be created: {error.strerror}", retryable=False) from error


def read_options(engine: Engine) -> dict[str, str]:
    """Return the execution options under which all reads of one transaction see one moment."""
    return {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}


def _parse(url: str) -> URL:
    """Read a url; a password at the wrong place is not shown to anybody."""
    try:
        parsed = make_url(url)
        parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ConfigError(f"the database url cannot be read: {_EXPECTED}") from None
    if parsed.get_backend_name() not in _KINDS:
        raise ConfigError(
            f"accounts cannot be in a database of kind {parsed.get_backend_name()}, expected one of {', '.join(_KINDS.values())}"
        )
    if parsed.host and "@" in f"{parsed.host}{parsed.database}":
        raise ConfigError(f"the database url has more than one @: {_EXPECTED}")
    return parsed


def _sqlite(url: URL) -> Engine:
    if url.database in (None, "", ":memory:"):
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
        event.listen(engine, "connect", _prepare)
    elif _is_read_only(Path(str(url.database))):
        engine = _reading_engine(Path(str(url.database)))
    else:
        keep_private(Path(str(url.database)))
        engine = create_engine(url, connect_args={"timeout": BUSY_MS / 1000, "check_same_thread": False})
        event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _is_read_only(path: Path) -> bool:
    try:
        return is_on_read_only_system(path)
    except OSError:  # it is not there, or cannot be reached: whoever opens it says so
        return False


def _reading_engine(path: Path) -> Engine:
    """On a read-only file system, such as a mounted backup: what is there can be read, and every change fails."""
    uri = f"{path.absolute().as_uri()}?{read_only_mode(path)}"

    def connected() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=BUSY_MS / 1000, check_same_thread=False, isolation_level=None)

    return create_engine("sqlite://", creator=connected, poolclass=QueuePool)


def _prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late and leaves DDL outside
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cache_size = -128")  # KiB, per thread: the directory's cache has what is needed again


def _begin(connection: Connection) -> None:
    is_write = connection.get_execution_options().get(WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")
