"""Engines for MySQL, MariaDB and PostgreSQL: a bounded pool, time limits on everything, sessions that behave alike; and what their errors mean.

Knows no table and no verb.

Theory. A writing transaction begins with the row lock of a counter, behind which all writers queue (`store.py`). On MySQL the snapshot of a
REPEATABLE READ transaction begins with its first read, behind that lock; on PostgreSQL it would begin before it and fail, so writers there are READ
COMMITTED. Readers see one moment on both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import Engine, TextClause, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from iothub_tenants.accounts import mysql
from iothub_tenants.accounts.bounds import SqlBounds

MYSQL = ("mysql", "mariadb")
_MYSQL_CLOCK = "SELECT UNIX_TIMESTAMP() * 1000"  # without a local time between: that jumps with daylight saving
_POSTGRESQL_CLOCK = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
_LOCK_LOST = (1205, 1213)  # MySQL: lock wait timeout, deadlock
_LOCK_LOST_STATES = ("40001", "40P01", "55P03")  # PostgreSQL: serialization failure, deadlock, lock not available
# What a server says to who may not come in, or a client of a certificate that it does not trust: a start does not wait for these.
_REFUSED_CODES = (1044, 1045, 1049, 1130, 1698, 2026, 3159)
_REFUSED_WORDS = (
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
    "invalid connection option",
    "invalid sslmode value",
    "invalid response to SSL negotiation",
    "CERTIFICATE_VERIFY_FAILED",
    "certificate verify failed",
    "signature failure",
    "server certificate for",
    "root certificate file",
    "private key file",
    "certificate file",
    "does not support SSL",
)


def server_engine(url: URL, bounds: SqlBounds) -> Engine:
    """Make an engine; nothing is connected yet. Raises sqlalchemy's ArgumentError, ImportError, ConfigError."""
    is_mysql = url.get_backend_name() in MYSQL
    is_pymysql = is_mysql and url.get_driver_name() == "pymysql"
    url, tls = mysql.tls_of(url) if is_pymysql else (url, None)
    engine = create_engine(
        url,
        pool_size=bounds.connections,
        max_overflow=0,
        pool_timeout=bounds.timeout_s,
        pool_recycle=int(bounds.recycle_s),
        pool_pre_ping=True,
        isolation_level="REPEATABLE READ" if is_mysql else "READ COMMITTED",
        connect_args=mysql.arguments(bounds) if is_mysql else _postgresql_arguments(bounds),
    )
    if is_pymysql:
        event.listen(engine, "do_connect", partial(mysql.connect, tls))
    if is_mysql:
        event.listen(engine, "connect", partial(mysql.prepare, bounds))
    elif engine.dialect.driver == "psycopg":
        event.listen(engine, "do_connect", partial(_connect_postgresql, bounds.socket_s))
    return engine


def clock_of(engine: Engine) -> TextClause:
    """Return the statement that asks the server for its time, in Unix milliseconds."""
    return text(_MYSQL_CLOCK if engine.dialect.name in MYSQL else _POSTGRESQL_CLOCK)


def is_of_sqlite(error: DBAPIError) -> bool:
    """Return whether no server is meant at all."""
    return type(error.orig).__module__ == "sqlite3"


def is_gone(error: DBAPIError) -> bool:
    """Return whether the server cannot be reached, or is no longer there: not that it refused a statement, or us."""
    return (error.connection_invalidated or error.statement is None) and not is_refused(error)


def is_refused(error: DBAPIError) -> bool:
    """Return whether the server let us not in, or we do not trust it: a wrong password, a database that is not there, another authority."""
    return error.statement is None and _says(error, _REFUSED_CODES, _REFUSED_WORDS)


def may_be_repeated(error: DBAPIError) -> bool:
    """Return whether the same on another connection may succeed at once: this one was dead, or another transaction was in the way."""
    if error.statement is None:  # there was no connection at all
        return False
    arguments = error.orig.args if error.orig is not None else ()
    has_lost_a_lock = (bool(arguments) and arguments[0] in _LOCK_LOST) or getattr(
        error.orig, "sqlstate", ""
    ) in _LOCK_LOST_STATES
    return error.connection_invalidated or has_lost_a_lock


def cause_of(error: DBAPIError) -> str:
    """Return what the server or its driver says, in one line. Neither ever names a password."""
    arguments = error.orig.args if error.orig is not None else ()
    text = str(arguments[1]) if len(arguments) > 1 and isinstance(arguments[0], int) else str(error.orig)
    return (text.splitlines() or [type(error.orig).__name__])[0]


def _says(error: DBAPIError, codes: tuple[int, ...], words: tuple[str, ...]) -> bool:
    arguments = error.orig.args if error.orig is not None else ()
    return bool(arguments) and (arguments[0] in codes or any(each in str(part) for part in arguments for each in words))


def _postgresql_arguments(bounds: SqlBounds) -> dict[str, Any]:
    settings = {
        "statement_timeout": int(bounds.statement_s * 1000),
        "lock_timeout": int(bounds.timeout_s * 1000),
        "idle_in_transaction_session_timeout": int(bounds.paused_s * 1000),
    }
    return {
        "connect_timeout": max(2, round(bounds.connect_timeout_s)),  # whole seconds, and 2 at least
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
    }


def _connect_postgresql(answer_s: float, _dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
    from iothub_tenants.accounts.postgresql import connect  # the library is an extra

    return connect(answer_s, *arguments, **options)
