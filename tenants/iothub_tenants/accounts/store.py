"""The accounts database as the verbs see it: short transactions that leave a line in the change log, or nothing.

Knows no noun: `tenants.py`, `devices.py` and their like say what is written. All methods block and may be called from any thread.

Theory. A writing transaction begins by moving the counter `change`. That row lock (SQLite: the write lock) puts all writers of all
processes into one order, so what a verb has checked stays true until it commits, and the ids of the change log become visible in
ascending order: a watcher that remembers the last id it saw misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Engine, insert, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError, TimeoutError

from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import BackendError, ConfigError, ConflictError, IotHubError
from iothub_migrations import schema
from iothub_services.auth.port import TenantState
from iothub_services.probing import Advice, Probe, probe_by
from iothub_services.sqlite.database import explain
from iothub_tenants.accounts import audit_rows, tables
from iothub_tenants.accounts.bounds import SqlBounds
from iothub_tenants.accounts.database import WRITE, create_file, file_of, open_engine, read_options
from iothub_tenants.accounts.gate import ADVICE, Gate, GoneError, NotAskedError, RefusedError
from iothub_tenants.accounts.servers import cause_of, is_gone, is_of_sqlite, is_refused, may_be_repeated

_SYSTEM_CLOCK = SystemClock()
_BOUNDS = SqlBounds()
HUB = "hub"  # who changes the accounts unless somebody says otherwise
_MIGRATING = SqlBounds(connections=2, timeout_s=600.0)  # a change of a large table takes its time

_OF_FILE = Advice("accounts.db", "docs/guide/troubleshooting.md#accountsdb-cannot-be-used")


class ChangeKind(StrEnum):
    """What a line of the change log is about; its subject is named beside each. `*` as subject: all of that tenant."""

    TENANT = "tenant"  # the tenant's name: created, state, plan, policy, deletion
    DEVICE = "device"  # a device's name
    DEVICE_DELETED = "device_deleted"  # a device's name: its sessions end
    ACL = "acl"  # "device:NAME", "group:NAME" or "*"
    QUOTA = "quota"  # a device's name or "*"
    PLAN = "plan"  # the plan's name; tenant 0
    BAN = "ban"  # "KIND:VALUE"
    TOKEN_ISSUER = "token_issuer"  # noqa: S105  the issuer's name
    STREAM = "stream"  # the stream's name
    WEBHOOK = "webhook"  # the webhook's name; tenant 0: of the platform
    JOB = "job"  # "JOB:RUN"; tenant 0; no record that hubs keep
    UNKNOWN = "unknown"  # read, never written: a later program's; looked at as a change of anything of the tenant


# Changes of these kinds leave the tenant's own record as it is.
_BESIDE_THE_TENANT = frozenset(
    {ChangeKind.DEVICE, ChangeKind.DEVICE_DELETED, ChangeKind.PLAN, ChangeKind.STREAM, ChangeKind.WEBHOOK}
)


class Writer:
    """One writing transaction: `connection` to work on, `changed` to say what was changed, `now_ms` for the rows.

    `number` counts the writing transactions: it rises with every one, in the order in which they commit.
    """

    __slots__ = ("actor", "connection", "has_changed", "now_ms", "number")

    def __init__(self, connection: Connection, number: int, now_ms: int, actor: str) -> None:
        self.actor = actor
        self.connection = connection
        self.has_changed = False  # a line was put into the change log
        self.number = number
        self.now_ms = now_ms

    def changed(
        self,
        tenant_id: int,
        kind: ChangeKind,
        subject: str,
        *,
        before: object = None,
        after: object = None,
        action: str = "",
    ) -> None:
        """Put a line into the change log and one into the audit log, and raise the tenant's version: with the change itself or not at all.

        `before`, `after`: the record as it was and is (a dataclass or a mapping); None: it was not there, or is gone. `action`: what the
        records do not show.
        """
        self.audited(tenant_id, kind.value, subject, before=before, after=after)
        self.noted(tenant_id, kind, subject, action or _action(before, after))
        if kind not in _BESIDE_THE_TENANT:
            self.touch(tables.tenant.c.id == tenant_id)

    def noted(self, tenant_id: int, kind: ChangeKind, subject: str, action: str) -> None:
        """Put a line into the change log alone."""
        otherwise = subject if kind is ChangeKind.TENANT else ""
        line = {
            "tenant_id": tenant_id,
            "kind": kind.value,
            "subject": subject,
            "at_ms": self.now_ms,
            "tenant": audit_rows.name_of(tenant_id, otherwise),
            "action": action,
        }
        self.connection.execute(insert(tables.change_log).values(line))
        self.has_changed = True

    def audited(self, tenant_id: int, kind: str, subject: str, *, before: object = None, after: object = None) -> None:
        """Put a line into the audit log alone: what changed is nothing that hubs have read."""
        who = audit_rows.Who(self.actor, tenant_id, self.now_ms)
        audit_rows.write(self.connection, who, kind, subject, before=before, after=after)

    def touch(self, which: ColumnElement[bool]) -> None:
        """Raise the version of these tenants."""
        self.connection.execute(update(tables.tenant).where(which).values(version=self.number))


def _action(before: object, after: object) -> str:
    """Say what has become of a record: the last part of the event about it (`iothub.records.tenant_events.EventKind`)."""
    if before is None:
        return "created"
    if after is None:
        return "deleted"
    was, is_ = getattr(before, "is_enabled", None), getattr(after, "is_enabled", None)
    if was != is_:
        return "enabled" if is_ else "disabled"
    state = getattr(after, "state", None)
    return "changed" if state == getattr(before, "state", None) else _STATES[state]


_STATES: Mapping[object, str] = {
    TenantState.ACTIVE: "resumed",
    TenantState.SUSPENDED: "suspended",
    TenantState.DELETING: "deleting",
}


class AccountStore:
    """An open accounts database.

    `pepper` is the server's own secret for generated device secrets; verbs that make or check none may do without.
    `bounds`: of a server. `is_checked`: look at the schema now; else `check` does, when the server is there. `actor`: whom the audit log
    names for what is changed.

    Raises:
        ConfigError: there is no database at the url yet, or the url is wrong.
        ConflictError: its schema is of the future, or must be upgraded first.
        BackendError: it cannot be opened.
    """

    def __init__(
        self,
        url: str,
        *,
        pepper: bytes = b"",
        clock: Clock = _SYSTEM_CLOCK,
        bounds: SqlBounds = _BOUNDS,
        is_checked: bool = True,
        actor: str = HUB,
    ) -> None:
        self.url = url
        self.actor = actor
        self.pepper = pepper
        self.clock = clock
        self.has_changed = False  # something that the change log names, by this store
        self._file = path = file_of(url)
        if path is not None and not path.exists():
            raise ConfigError(f"there is no accounts database at {path}: run `iothub init` first")
        self.engine: Engine = open_engine(url, bounds)
        self.is_on_server = self.engine.dialect.name != "sqlite"
        self._lock_tries = bounds.lock_tries
        self._gate = Gate(clock)
        self._was_let_in = False
        self._reading = self.engine.execution_options(**read_options(self.engine))
        self._writing = self.engine.execution_options(**{WRITE: True})
        try:
            if is_checked:
                self.check()
        except BaseException:
            self.close()
            raise

    def acting_as(self, actor: str) -> AccountStore:
        """Return the same store for somebody else, who says by himself whether he has changed something. Only the first one is closed."""
        view = copy(self)
        view.actor = actor
        view.has_changed = False
        return view

    def now_ms(self) -> int:
        return int(self.clock.wall() * 1000)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection whose reads see one moment.

        Raises:
            BackendError: the database did not answer.
        """
        with self.asked(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Writer]:
        """Give a writing transaction; it commits at the end of the block, and an exception undoes it.

        Raises:
            BackendError: the database is busy, full, read-only or did not answer; only where the text says so it may have been done all the same.
            ConflictError: another process was faster.
        """
        with self.asked(), self._begun() as (connection, number):
            writer = Writer(connection, number, self.now_ms(), self.actor)
            yield writer
            with _commit_loss_reported():
                connection.commit()
            self.has_changed |= writer.has_changed

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Translate the database's errors; a server that was silent a moment ago is not asked at all. Raises BackendError, ConflictError."""
        if not self.is_on_server:
            with errors_translated(self._file):
                yield
            return
        with self._gate.passed(), self._waiting_once_let_in(), errors_translated():
            yield

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _waiting_once_let_in(self) -> Iterator[None]:
        """A server that refuses us now and did not before, such as one whose passwords are changed or whose database is restored, is away."""
        try:
            yield
        except RefusedError as error:
            if self._was_let_in:
                raise GoneError(error.fact) from error
            raise
        self._was_let_in = True

    @contextmanager
    def _begun(self) -> Iterator[tuple[Connection, int]]:
        with ExitStack() as stack:
            yield self._begin_when_free(stack)

    def _begin_when_free(self, stack: ExitStack) -> tuple[Connection, int]:
        """Nothing was done before the lock is there, so it may be done again. MySQL alone takes no lock from a process that is paused."""
        for _ in range(self._lock_tries - 1):
            try:
                return self._begin(stack)
            except DBAPIError as error:
                if not self.is_on_server or not may_be_repeated(error):
                    raise
        return self._begin(stack)

    def _begin(self, outer: ExitStack) -> tuple[Connection, int]:
        counter = tables.id_block
        is_it = counter.c.name == "change"
        with ExitStack() as stack:
            connection = stack.enter_context(self._writing.begin())
            connection.execute(update(counter).where(is_it).values(next=counter.c.next + 1))
            number: int = connection.execute(select(counter.c.next).where(is_it)).scalar_one()
            outer.push(stack.pop_all())
        return connection, number

    def probe(self) -> Probe:
        """Ask the database one question."""
        return probe_by(self._answer, ADVICE if self.is_on_server else _OF_FILE)

    def _answer(self) -> str:
        with self.asked(), self._reading.connect() as connection:
            connection.execute(select(1))
        return f"{self.engine.dialect.name} answers"

    def check(self) -> None:
        """Look whether this program can use the schema. Raises as the class says."""
        with self.asked():
            state = schema.check(self.engine)
        if state is schema.SchemaState.FRESH:
            raise ConfigError("the accounts database is empty: run `iothub init` first")
        if state is schema.SchemaState.OLD:
            raise ConflictError(
                f"the accounts database is older than this program (schema {schema.SCHEMA_VERSION}): run `iothub db upgrade` first"
            )


def has_schema(url: str) -> bool:
    """Say whether somebody has made accounts there; nothing is made. Raises ConfigError, ConflictError (schema of the future), BackendError."""
    path = file_of(url)
    if path is not None and not path.exists():
        return False
    engine = open_engine(url)
    try:
        with errors_translated(path):
            return schema.check(engine) is not schema.SchemaState.FRESH
    finally:
        engine.dispose()


def create_schema(url: str) -> schema.SchemaState:
    """Create the tables, or upgrade them, and return what was found before. Idempotent.

    Raises:
        ConfigError, ConflictError (schema of the future), BackendError.
    """
    path = file_of(url)
    if path is not None:
        create_file(path)
    engine = open_engine(url, _MIGRATING)
    try:
        with errors_translated(path):
            return schema.upgrade(engine)
    finally:
        engine.dispose()


@contextmanager
def errors_translated(file: Path | None = None) -> Iterator[None]:
    """Turn the database's errors into ours, one line each, without statements or values (they may hold credentials).

    `file`: of the database, if it is one.
    """
    try:
        yield
    except IntegrityError as error:
        raise ConflictError("conflict with a concurrent change of the accounts; try again") from error
    except DBAPIError as error:
        raise _translated(error, file) from error
    except TimeoutError as error:
        raise NotAskedError(
            "every connection to the accounts database is in use: try again, or raise sql.connections"
        ) from error
    except SQLAlchemyError as error:
        raise BackendError(f"the accounts database failed: {type(error).__name__}", retryable=False) from error


@contextmanager
def _commit_loss_reported() -> Iterator[None]:
    """Around a commit: whose answer is lost may have been done."""
    try:
        yield
    except DBAPIError as error:
        if is_of_sqlite(error):
            raise
        if not error.connection_invalidated:
            raise BackendError(f"the accounts database did not commit: {cause_of(error)}", retryable=True) from error
        raise GoneError(
            f"connection to the accounts database lost before it confirmed the change; check before you repeat it: {cause_of(error)}"
        ) from error


def _translated(error: DBAPIError, file: Path | None) -> IotHubError:
    cause, is_ours = cause_of(error), is_of_sqlite(error)
    if not is_ours and is_refused(error):
        return RefusedError(f"no connection to the accounts database: {cause}")
    if not is_ours and is_gone(error):
        return GoneError(f"the accounts database does not answer: {cause}")
    remedy = str(_OF_FILE) if is_ours else ""
    if is_ours and file is not None:
        cause, own_remedy = explain(cast("Any", error.orig), file)
        remedy = "; ".join(part for part in (own_remedy, remedy) if part)
    return BackendError(
        f"the accounts database failed: {cause}", retryable=isinstance(error, OperationalError), remedy=remedy
    )
