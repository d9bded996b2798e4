"""Copies a whole accounts database into another one, of any kind: rows, ids, counters, the id of the installation; and proves that it did.

Knows no verb and no hub: the caller makes sure that nothing changes the accounts meanwhile, and `copy_accounts` raises if something did.

Theory. Rows go in the order of the source's primary keys, a batch to a transaction; so the number of rows in the target says where to go on after a
crash. A mark in `schema_info`, set before the first row and taken away after the last comparison, keeps programs from using half a copy. Both sides
are compared by count and by a sum of the rows' digests, which needs no common order: collations differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum, auto

from sqlalchemy import Connection, Engine, Result, Row, Table, func, inspect, select, text

from iothub.base.errors import BackendError, ConflictError, IotHubError
from iothub_migrations import schema
from iothub_tenants.accounts import counters, tables
from iothub_tenants.accounts.bounds import SqlBounds
from iothub_tenants.accounts.database import WRITE, create_file, file_of, open_engine, read_options
from iothub_tenants.accounts.gate import OUR_URL
from iothub_tenants.accounts.rows import in_order
from iothub_tenants.accounts.store import create_schema, errors_translated

BATCH = 200  # rows; far below what a server takes in one packet
_BOUNDS = SqlBounds(connections=2, timeout_s=600.0)
_TABLES = tuple(table for table in tables.metadata.sorted_tables if table is not tables.schema_info)
_SUM_BITS = 256

OnProgress = Callable[[int, int], None]
"""Gets the number of rows that are there, or were compared on both sides, and of all. A comparison begins with none."""

OnBegin = Callable[[int], None]
"""Gets the number of rows that are there before any is copied, and once more when a copy begins anew."""


class How(Enum):
    """How a copy came about."""

    AT_ONCE = auto()
    RESUMED = auto()  # an earlier one was cut short, and went on
    BEGUN_ANEW = auto()  # an earlier one was cut short, and the accounts had changed since


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy did. `rows`: by table, all compared; `installation`: whose accounts they are."""

    rows: dict[str, int]
    how: How
    installation: str


@dataclass(frozen=True, slots=True)
class _Digest:
    count: int
    total: int


def copy_accounts(
    source_url: str,
    target_url: str,
    on_progress: OnProgress = lambda done, of: None,
    *,
    on_begin: OnBegin = lambda done: None,
    on_compared: OnProgress = lambda done, of: None,
    named: str = "the target",
) -> Copied:
    """Copy, or continue where an earlier copy of the same accounts was cut short. Errors of the target begin with `named`, the file of its url.

    Raises:
        ConfigError: A url cannot be read.
        ConflictError: The target has accounts; or the source was changed meanwhile, by a hub or a command; or a later program made it.
        BackendError: A database failed. The same call continues.
    """
    source = open_engine(source_url, _BOUNDS)
    with _of_target(named):
        target = open_engine(target_url, _BOUNDS)
    try:
        with errors_translated():
            _require_known(source)
            with source.connect() as connection:
                installation = _installation(connection)
            with _of_target(named):
                was_resumed = _take(target, target_url, installation)
            reading = source.execution_options(**read_options(source))
            with reading.connect() as connection:
                copied = _Copy(connection, target, _Watch(on_progress, on_begin, on_compared), named).run(
                    was_resumed=was_resumed
                )
            _require_still(source, copied[1])
            with _of_target(named):
                schema.end_copying(target)
            return copied[0]
    finally:
        source.dispose()
        target.dispose()


@dataclass(frozen=True, slots=True)
class _Watch:
    """Gets the progress of a copy."""

    on_progress: OnProgress
    on_begin: OnBegin
    on_compared: OnProgress


class _Copy:
    """One run. `connection`: its reads see one moment of the source."""

    def __init__(self, connection: Connection, target: Engine, watch: _Watch, named: str) -> None:
        self._source = connection
        self._target = target.execution_options(**{WRITE: True})
        self._watch = watch
        self._named = named

    def run(self, *, was_resumed: bool) -> tuple[Copied, int]:
        """Return what was done, and how far the source's counters were."""
        counted = _counted(self._source)
        how = How.RESUMED if was_resumed else How.AT_ONCE
        with (
            suppress(ConflictError) if was_resumed else nullcontext()
        ):  # by place, some rows of a changed source come again
            self._copy_all()
        expected, found = self._digests()
        if expected != found and was_resumed:  # the source has changed between the two runs: from the beginning
            how = How.BEGUN_ANEW
            self._empty()
            self._copy_all()
            expected, found = self._digests()
        wrong = [name for name, digest in expected.items() if found[name] != digest]
        if wrong:
            raise BackendError(
                f"the copy differs from its source in {', '.join(wrong)}: run the same command again, and report it if that does not help",
                retryable=True,
            )
        with _of_target(self._named):
            counters.carry_over(self._source, self._target)
        installation = _installation(self._source)
        return Copied({name: digest.count for name, digest in expected.items()}, how, installation), counted

    def _copy_all(self) -> None:
        counts = {table.name: _count(self._source, table) for table in _TABLES}
        with self._writing() as connection:
            there = {table.name: _count(connection, table) for table in _TABLES}
        done, of = sum(there.values()), sum(counts.values())
        self._watch.on_begin(done)
        for table in _TABLES:
            for batch in _rows(self._source, table, there[table.name]).partitions():
                with self._writing() as connection:
                    connection.execute(table.insert(), [row._asdict() for row in batch])
                done += len(batch)
                self._watch.on_progress(done, of)

    def _empty(self) -> None:
        with self._writing() as connection:
            for table in reversed(_TABLES):
                connection.execute(table.delete())

    def _digests(self) -> tuple[dict[str, _Digest], dict[str, _Digest]]:
        """Return what source and target have, by table."""
        seen = 0

        def digest(connection: Connection, table: Table) -> _Digest:
            nonlocal seen
            found = _digest(connection, table, lambda count: self._watch.on_compared(seen + count, of))
            seen += found.count
            return found

        with _of_target(self._named), self._target.connect() as connection:
            of = sum(_count(side, table) for side in (self._source, connection) for table in _TABLES)
            self._watch.on_compared(0, of)
            found = {table.name: digest(connection, table) for table in _TABLES}
        return {table.name: digest(self._source, table) for table in _TABLES}, found

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with _of_target(self._named), self._target.begin() as connection:
            yield connection


@contextmanager
def _of_target(named: str) -> Iterator[None]:
    """Let errors say that the target is meant, and whose url."""
    try:
        with errors_translated():
            yield
    except IotHubError as error:
        error.args = (f"{named}: {str(error).replace(OUR_URL, 'the url in this file')}",)
        raise


def _take(target: Engine, url: str, installation: str) -> bool:
    """Make the target ready for rows; returns whether it has some of an earlier copy of this installation's. Raises ConflictError."""
    path = file_of(url)
    if path is not None:
        create_file(path)
    if schema.is_copying(target):
        return True
    if schema.check(target) is not schema.SchemaState.FRESH and inspect(target).has_table("tenant"):
        with target.connect() as connection:
            count = connection.execute(text("SELECT count(*) FROM tenant")).scalar_one()
            is_ours = inspect(connection).has_table("installation") and _installation(connection) == installation
        if count and is_ours:
            raise ConflictError(
                f"is a finished copy of these accounts, with {count} tenants: name the file in sql.url_file of every hub; "
                "for a new copy choose an empty database"
            )
        if count:
            raise ConflictError(
                f"the target has accounts already (tenants: {count}): expected an empty database, or an unfinished copy"
            )
    create_schema(url)
    with target.execution_options(**{WRITE: True}).begin() as connection:
        for table in reversed(_TABLES):  # what `init` and the migrations begin with; the source has its own
            connection.execute(table.delete())
        schema.mark_copying(connection)
    return False


def _installation(connection: Connection) -> str:
    return str(connection.execute(select(tables.installation.c.id)).scalar_one())


def _require_known(source: Engine) -> None:
    """What this program does not know would be left behind."""
    if schema.check(source) is schema.SchemaState.NEWER:
        raise ConflictError("a newer program has made these accounts: copy them with that program")


def _require_still(source: Engine, counted: int) -> None:
    with source.connect() as connection:
        if _counted(connection) != counted:
            raise ConflictError(
                "the accounts were changed while they were copied: stop every hub and command on them, and run the same command again"
            )


def _counted(connection: Connection) -> int:
    """Return the sum of the counters of changes and queue ids; both only rise."""
    return int(connection.execute(select(func.sum(tables.id_block.c.next))).scalar_one())


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _rows(connection: Connection, table: Table, offset: int = 0) -> Result[tuple[object, ...]]:
    """Return the rows behind so many, a batch at a time on their way."""
    query = in_order(table)
    if offset:  # MySQL has no OFFSET without a LIMIT
        query = query.limit((1 << 63) - 1).offset(offset)
    return connection.execution_options(yield_per=BATCH).execute(query)


def _digest(connection: Connection, table: Table, on_progress: Callable[[int], None]) -> _Digest:
    """Sum up what needs no order; `on_progress` gets how many rows there were, after each batch."""
    count = total = 0
    for batch in _rows(connection, table).partitions():
        count += len(batch)
        total += sum(_number(row) for row in batch)
        on_progress(count)
    return _Digest(count, total % (1 << _SUM_BITS))


def _number(row: Row[tuple[object, ...]]) -> int:
    return int.from_bytes(hashlib.sha256(json.dumps(list(row)).encode()).digest(), "big")
