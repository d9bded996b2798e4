"""The accounts database as jobs use it: usage by the hour, marks in the logs, the names of tenants.

Knows these tables alone, by their names; `iothub_migrations` makes them. Everything blocks. A hub may be working in the same file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    create_engine,
    delete,
    insert,
    select,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from iothub.errors import BackendError, ConfigError
from iothub_spark.schemas.statistics import USAGE_HOURS
from iothub_spark.stores.log import Offsets

_BUSY_S = 30.0
_ROWS = 500  # in one statement
_URL_LIMIT = 4_096

_metadata = MetaData()
_tenant = Table("tenant", _metadata, Column("id", Integer, primary_key=True), Column("name", String))
_usage_hour = Table(
    "usage_hour",
    _metadata,
    *[Column(name, Integer, primary_key=name in ("tenant_id", "hour_ms")) for name in USAGE_HOURS.names],
    Column("written_ms", Integer),
)
_mark = Table(
    "job_mark",
    _metadata,
    Column("job", String, primary_key=True),
    Column("log", String, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("upto", Integer),
    Column("at_ms", Integer),
)

Row = Mapping[str, int]


class Mark(NamedTuple):
    """How far a job has a log. `at_ms`: when it was put there; every mark has another time than the one before."""

    offsets: Offsets
    at_ms: int


class Accounts:
    """An open accounts database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def tenants(self) -> dict[int, str]:
        """Return the names of those that there are. Raises BackendError."""
        with self._transaction() as connection:
            return {int(number): str(name) for number, name in connection.execute(select(_tenant.c.id, _tenant.c.name))}

    def replace_hours(self, rows: Sequence[Row], now_ms: int) -> int:
        """Put these rows in the place of those of the same tenant and hour; those of tenants that are gone are left out. Returns how many.

        Raises BackendError: nothing was changed.
        """
        with self._transaction() as connection:
            living = set(connection.execute(select(_tenant.c.id)).scalars())
            kept = [{**row, "written_ms": now_ms} for row in rows if row["tenant_id"] in living]
            for start in range(0, len(kept), _ROWS):
                some = kept[start : start + _ROWS]
                is_one = (_usage_hour.c.tenant_id == bindparam("tenant")) & (_usage_hour.c.hour_ms == bindparam("hour"))
                each = [{"tenant": row["tenant_id"], "hour": row["hour_ms"]} for row in some]
                connection.execute(delete(_usage_hour).where(is_one), each)
                connection.execute(insert(_usage_hour), some)
        return len(kept)

    def hours(self, from_ms: int, to_ms: int) -> list[dict[str, int]]:
        """Return every tenant's hours that begin in a stretch of time. Raises BackendError."""
        columns = [_usage_hour.c[name] for name in USAGE_HOURS.names]
        is_in = (_usage_hour.c.hour_ms >= from_ms) & (_usage_hour.c.hour_ms < to_ms)
        with self._transaction() as connection:
            rows = connection.execute(select(*columns).where(is_in).order_by(_usage_hour.c.hour_ms)).all()
        return [dict(zip(USAGE_HOURS.names, map(int, row), strict=True)) for row in rows]

    def drop_hours(self, tenant_id: int) -> int:
        """Remove the rows of a tenant; returns how many. Raises BackendError."""
        with self._transaction() as connection:
            return connection.execute(delete(_usage_hour).where(_usage_hour.c.tenant_id == tenant_id)).rowcount

    def mark(self, job: str, log: str) -> Mark | None:
        """Return how far a job has a log. Raises BackendError."""
        columns = (_mark.c.part, _mark.c.upto, _mark.c.at_ms)
        query = select(*columns).where((_mark.c.job == job) & (_mark.c.log == log)).order_by(_mark.c.part)
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        return Mark(tuple(int(row.upto) for row in rows), int(rows[0].at_ms)) if rows else None

    def set_mark(self, job: str, log: str, offsets: Offsets, now_ms: int) -> Mark:
        """Say how far a job has a log from now on. Raises BackendError."""
        before = self.mark(job, log)
        at_ms = now_ms if before is None else max(now_ms, before.at_ms + 1)
        rows = [
            {"job": job, "log": log, "part": part, "upto": upto, "at_ms": at_ms} for part, upto in enumerate(offsets)
        ]
        with self._transaction() as connection:
            connection.execute(delete(_mark).where((_mark.c.job == job) & (_mark.c.log == log)))
            connection.execute(insert(_mark), rows)
        return Mark(offsets, at_ms)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            first = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise BackendError(f"the accounts database: {first}", retryable=True) from error


@contextmanager
def opened_accounts(url_file: Path | None) -> Iterator[Accounts]:
    """Open the accounts database. Raises ConfigError, BackendError."""
    engine = _engine(_url(url_file))
    try:
        yield Accounts(engine)
    finally:
        engine.dispose()


def _url(url_file: Path | None) -> str:
    if url_file is None:
        raise ConfigError("sql_url_file: is missing, expected the file with the URL of the accounts database")
    try:
        return url_file.read_text(encoding="utf-8")[:_URL_LIMIT].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"sql_url_file {url_file}: cannot be read: {error}") from None


def _engine(url: str) -> Engine:
    """Errors do not show the URL: it may have a password."""
    try:
        is_file = url.startswith("sqlite")
        return (
            create_engine(url, connect_args={"timeout": _BUSY_S}) if is_file else create_engine(url, pool_pre_ping=True)
        )
    except (ArgumentError, NoSuchModuleError):
        raise ConfigError("sql_url_file: is no SQLAlchemy URL, expected for example sqlite:///accounts.db") from None
    except ImportError as error:
        raise ConfigError(
            f"sql_url_file: {error.name} is not installed; install iothub[mysql] or iothub[postgresql]"
        ) from None
