"""The accounts database as jobs use it: usage by the hour, marks in the logs, the names of tenants.

Knows only these tables, by their names; `iothub_migrations` makes them. Everything blocks. A hub may be working in the same file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    Update,
    bindparam,
    case,
    create_engine,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from iothub.base.errors import BackendError, ConfigError
from iothub_spark.schemas.statistics import USAGE_HOURS
from iothub_spark.stores.log import Offsets

_BUSY_S = 30.0
_ROWS = 500  # in one statement
_URL_LIMIT = 4_096

_metadata = MetaData()  # whole numbers are wide: PostgreSQL casts each parameter to the type that is named here
_tenant = Table("tenant", _metadata, Column("id", BigInteger, primary_key=True), Column("name", String))
_usage_hour = Table(
    "usage_hour",
    _metadata,
    *[Column(name, BigInteger, primary_key=name in ("tenant_id", "hour_ms")) for name in USAGE_HOURS.names],
    Column("written_ms", BigInteger),
)
_mark = Table(
    "job_mark",
    _metadata,
    Column("job", String, primary_key=True),
    Column("log", String, primary_key=True),
    Column("part", BigInteger, primary_key=True),
    Column("upto", BigInteger),
    Column("at_ms", BigInteger),
)

Row = Mapping[str, int]


def _grown() -> Update:
    """Return what raises the figures of one row."""
    new = {name: bindparam(f"new_{name}", type_=BigInteger) for name in USAGE_HOURS.names}
    is_one = (_usage_hour.c.tenant_id == new["tenant_id"]) & (_usage_hour.c.hour_ms == new["hour_ms"])
    greater = {
        name: case((_usage_hour.c[name] > new[name], _usage_hour.c[name]), else_=new[name])
        for name in USAGE_HOURS.names[2:]
    }
    return update(_usage_hour).where(is_one).values(**greater, written_ms=bindparam("new_written_ms"))


_GROWN = _grown()


def _bound(row: Row) -> dict[str, int]:
    return {f"new_{name}": row[name] for name in USAGE_HOURS.names}


def _known(connection: Connection, rows: Sequence[Row]) -> set[tuple[int, int]]:
    """Return which rows there are, by tenant and hour, from the first to the last hour of some."""
    hours = [row["hour_ms"] for row in rows] or [0]
    query = select(_usage_hour.c.tenant_id, _usage_hour.c.hour_ms)
    found = connection.execute(query.where(_usage_hour.c.hour_ms.between(min(hours), max(hours))))
    return {(int(tenant_id), int(hour_ms)) for tenant_id, hour_ms in found}


def _portions(rows: Sequence[Row]) -> list[Sequence[Row]]:
    return [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]


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
        """Write these rows; those of tenants that are gone are left out. Returns how many.

        Where there is a row of the same tenant and hour, the greater of each figure stays: all are sums of what has happened, so the smaller
        one is of a log that has lost events.

        Raises BackendError: nothing was changed.
        """
        with self._transaction() as connection:
            for some in _portions(rows):  # first: whoever has begun to write reads what stays
                connection.execute(_GROWN, [{**_bound(row), "new_written_ms": now_ms} for row in some])
            living = set(connection.execute(select(_tenant.c.id)).scalars())
            known = _known(connection, rows)
            kept = [row for row in rows if row["tenant_id"] in living]
            fresh = [row for row in kept if (row["tenant_id"], row["hour_ms"]) not in known]
            for some in _portions(fresh):
                connection.execute(insert(_usage_hour), [{**row, "written_ms": now_ms} for row in some])
        return len(kept)

    def last_written_ms(self) -> int | None:
        """Return when sums were written the last time. Raises BackendError."""
        with self._transaction() as connection:
            found = connection.execute(select(func.max(_usage_hour.c.written_ms))).scalar()
        return None if found is None else int(found)

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

    def marks(self, log: str) -> dict[str, Offsets]:
        """Return how far each job that has a mark has a log: it is not trimmed past any of them. Raises BackendError."""
        query = select(_mark.c.job, _mark.c.upto).where(_mark.c.log == log).order_by(_mark.c.job, _mark.c.part)
        found: dict[str, Offsets] = {}
        with self._transaction() as connection:
            for job, upto in connection.execute(query):
                found[job] = (*found.get(job, ()), int(upto))
        return found

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
        raise ConfigError("sql_url_file is missing: expected the file with the URL of the accounts database")
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
        raise ConfigError("sql_url_file: not a SQLAlchemy URL: expected for example sqlite:///accounts.db") from None
    except ImportError as error:
        raise ConfigError(
            f"sql_url_file: {error.name} is not installed; install iothub[mysql] or iothub[postgresql]"
        ) from None
