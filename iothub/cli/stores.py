"""The stores of a hub, for the command line: to read beside a running hub, or to work in while none runs.

Knows no noun. Beside a hub the files are opened read-only and never repaired: that is the hub's. Working in them takes the lock.
Stores on servers are reached by a connection of the command's own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import cast

from iothub.base.clock import SystemClock
from iothub.base.errors import ConflictError, CorruptRecordError, NotFoundError, UnavailableError
from iothub.cli import output
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.drivers import (
    Drivers,
    hbase_checkpoints,
    hbase_queues,
    hbase_retained,
    hbase_states,
    kafka_log,
    needed_tables,
    owned_tables,
    queue_drivers,
    redis_queues,
    unused_files,
)
from iothub.hub.installation import installation_of
from iothub.hub.store_alarms import report_lost
from iothub.records import events
from iothub.records.events import Subject
from iothub.records.state import SessionState, decode_state, fold
from iothub_services.events.port import NOWHERE, EventLog, Offsets
from iothub_services.events.reading import read_between
from iothub_services.events.sqlite.log import SCHEMA as EVENTS_SCHEMA
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.hbase import from_settings
from iothub_services.hbase.caller import Caller
from iothub_services.queues.port import QueueStore
from iothub_services.queues.several import SeveralQueues
from iothub_services.queues.sqlite import schema as queue_schema
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.quota.slots import SlotFile
from iothub_services.quota.usage import Usage, UsageStore
from iothub_services.retained.port import RetainedStore
from iothub_services.retained.sqlite.store import SCHEMA as RETAINED_SCHEMA
from iothub_services.retained.sqlite.store import SqliteRetained
from iothub_services.sqlite.database import Database, Schema, connect, open_database
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS_SCHEMA
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints
from iothub_services.state.sqlite.store import SCHEMA as STATE_SCHEMA
from iothub_services.state.sqlite.store import SqliteStates
from iothub_services.state.start import newer_checkpoint

_DEFAULTS = Config()


class ReadOnlyDatabase(Database):
    """A file that another process may be writing: every statement sees what is committed, nothing is changed."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        self.schema = schema
        self.before_commit = []
        self.after_commit = []
        self.on_rollback = []
        self.writer = self.reader = connect(path, is_read_only=True)
        try:
            self._require_version()
        except BaseException:
            self.close()
            raise

    def _require_version(self) -> None:
        version = int(self.reader.execute("PRAGMA user_version").fetchone()[0])
        if version != self.schema.version:
            raise ConflictError(
                f"{self.path.name} has schema version {version}, this program knows {self.schema.version}: "
                "use the program that the hub runs"
            )


Sessions = dict[str, SessionState]
"""The persistent sessions of a tenant by client id, ascending."""


class Stores:
    """All stores of a data directory, open for work."""

    def __init__(self, data_dir: DataDir, settings: Config, stack: ExitStack) -> None:
        def opened(path: Path, schema: Schema) -> Database:
            database = open_database(path, schema, SystemClock(), _report)
            stack.callback(database.close)
            return database

        self._data_dir = data_dir
        self._settings = settings
        report_lost(data_dir, _report, unused_files(settings, data_dir))
        installation = cache(lambda: installation_of(settings, data_dir))
        drivers = Drivers(settings, data_dir, opened, lambda: _way(settings, stack), installation, _report)
        self.queues = drivers.queues()
        stack.callback(self.queues.close)
        self.retained = drivers.retained()
        self.log = drivers.event_log()
        stack.callback(self.log.close)
        self.states = drivers.states()
        for owned in drivers.owned.values():
            owned.check()

    def sessions(self, tenant_id: int) -> Sessions:
        with reading_checkpoints(self._data_dir, self._settings) as checkpoints:
            return fold_sessions(self.states, self.log, tenant_id, checkpoints)

    def discard(self, states: Iterable[SessionState], reason: str) -> None:
        """End sessions: the events first, so that a crash leaves queues without a session, never the other way round."""
        at_ms, ended = int(SystemClock().wall() * 1000), list(states)
        subjects = [Subject(state.tenant_id, state.client_id, state.epoch, at_ms) for state in ended]
        self.log.append([events.session_discarded(subject, reason=reason) for subject in subjects])
        with self.queues.group():
            for state in ended:
                self.queues.drop(state.queue_id)

    def drop_tenant(self, tenant_id: int) -> None:
        """Remove everything of a tenant. Idempotent."""
        self.discard(self.sessions(tenant_id).values(), "tenant_deleted")
        self.queues.drop_tenant(tenant_id)
        self.retained.drop_tenant(tenant_id)
        self.states.drop_tenant(tenant_id)
        self._forget_usage(tenant_id)

    def _forget_usage(self, tenant_id: int) -> None:
        clock = SystemClock()
        store = UsageStore(self._data_dir.usage, clock, _report)
        with closing(Usage(store, clock, SlotFile(self._data_dir.path / "usage.map"))) as usage:
            usage.forget_tenant(tenant_id)
            store.drop_tenant(tenant_id)


@contextmanager
def working_alone(data_dir: DataDir, command: str, settings: Config = _DEFAULTS) -> Iterator[Stores | None]:
    """Take the data directory and open its stores for work; None when a hub holds it."""
    try:
        lock = data_dir.lock(command)
    except ConflictError:
        yield None
        return
    try:
        with ExitStack() as stack:
            yield Stores(data_dir, settings, stack)
    finally:
        lock.release()


@contextmanager
def reading_retained(data_dir: DataDir, settings: Config = _DEFAULTS) -> Iterator[RetainedStore | None]:
    """Open the retained messages to read; None when no hub has made the file yet."""
    if settings.retained.driver != "sqlite":
        with ExitStack() as stack:
            yield hbase_retained(_connected(settings, data_dir, stack), settings)
        return
    with _reading(data_dir.retained, RETAINED_SCHEMA) as database:
        yield cast("RetainedStore", SqliteRetained(database)) if database is not None else None


@contextmanager
def reading_queues(data_dir: DataDir, settings: Config = _DEFAULTS) -> Iterator[SeveralQueues | None]:
    """Open the virtual queues to read, of one driver or of several; None when no hub has made the file yet."""
    with ExitStack() as stack:
        queues: dict[str, QueueStore] = {}
        for driver in queue_drivers(settings, data_dir):
            if driver == "redis":
                queues[driver] = _on_redis(settings, data_dir, stack)
            elif driver != "sqlite":
                queues[driver] = hbase_queues(driver, _connected(settings, data_dir, stack), settings)
            elif database := stack.enter_context(_reading(data_dir.queues, queue_schema.SCHEMA)):
                queues[driver] = cast("QueueStore", SqliteQueues(database))
        yield SeveralQueues(queues, settings.queues.driver) if queues else None


@contextmanager
def reading_events(data_dir: DataDir, settings: Config = _DEFAULTS) -> Iterator[EventLog | None]:
    """Open the session-event log to read; None when no hub has made it yet."""
    if settings.events.driver == "sqlite":
        with _reading(data_dir.events, EVENTS_SCHEMA) as database:
            yield SqliteEvents(database) if database is not None else None
        return
    with closing(kafka_log(settings, is_read_only=True)) as log:
        installation_of(settings, data_dir).topics(log).check()
        try:
            log.open()
        except NotFoundError:
            yield None
            return
        yield log


@contextmanager
def reading_states(data_dir: DataDir, settings: Config = _DEFAULTS) -> Iterator[StateStore | None]:
    """Open the session states to read; None when no hub has made the file yet."""
    if settings.state.driver != "sqlite":
        with ExitStack() as stack:
            yield hbase_states(_connected(settings, data_dir, stack), settings)
        return
    with _reading(data_dir.state, STATE_SCHEMA) as database:
        yield cast("StateStore", SqliteStates(database)) if database is not None else None


@contextmanager
def reading_checkpoints(data_dir: DataDir, settings: Config = _DEFAULTS) -> Iterator[CheckpointStore | None]:
    """Open the checkpoints to read; None when no job has made any yet."""
    if settings.state.driver != "sqlite":
        with ExitStack() as stack:
            yield hbase_checkpoints(_connected(settings, data_dir, stack), settings)
        return
    with _reading(data_dir.checkpoints, CHECKPOINTS_SCHEMA) as database:
        yield SqliteCheckpoints(database) if database is not None else None


def applied_offsets(data_dir: DataDir, settings: Config = _DEFAULTS) -> Offsets:
    """Return how far the session states include the log; nowhere when no hub has made them yet."""
    with reading_states(data_dir, settings) as states:
        return NOWHERE if states is None else states.applied_offsets()


def read_sessions(data_dir: DataDir, tenant_id: int, settings: Config = _DEFAULTS) -> Sessions:
    """Read the persistent sessions of a tenant: what is folded already, and the tail of the log."""
    with reading_events(data_dir, settings) as log, reading_states(data_dir, settings) as states:
        if log is None or states is None:
            return {}
        with reading_checkpoints(data_dir, settings) as checkpoints:
            return fold_sessions(states, log, tenant_id, checkpoints)


def fold_sessions(states: StateStore, log: EventLog, tenant_id: int, checkpoints: CheckpointStore | None) -> Sessions:
    """Fold the log's tail over the stored states, or over the checkpoint that they do not have yet: a start writes it behind.

    The place is read first: what is applied meanwhile is folded twice, once. Damaged rows and events are passed over with a warning.
    """
    after = states.applied_offsets()
    checkpoint = None if checkpoints is None else newer_checkpoint(checkpoints, log, after)
    sessions: Sessions = {}
    if checkpoint is None:
        for row in states.load(tenant_id):
            try:
                sessions[row.client_id] = decode_state(row.record)
            except CorruptRecordError as error:
                warn_of_damage(f"session {row.client_id!r}: {error}")
    else:
        after = checkpoint.pointer.offsets
        sessions = {state.client_id: state for state in checkpoint.states.values() if state.tenant_id == tenant_id}
    for _, offset, event in read_between(log, after, log.end(), lambda damaged: warn_of_damage(damaged.reason)):
        if event.tenant_id == tenant_id:
            state = fold(sessions.get(event.client_id), event, offset)
            if state is not None:
                sessions[event.client_id] = state
    return {client_id: sessions[client_id] for client_id in sorted(sessions) if not sessions[client_id].is_ended}


def require_own_stores(data_dir: DataDir, settings: Config) -> None:
    """Raise ConflictError when a store on a server, or the files beside, are not those of these accounts."""
    with ExitStack() as stack:
        installation = installation_of(settings, data_dir)
        installation.check_directory(data_dir)
        if needed_tables(settings, data_dir):
            _connected(settings, data_dir, stack)
        if "redis" in queue_drivers(settings, data_dir):
            _on_redis(settings, data_dir, stack)
        if settings.events.driver == "kafka":
            with closing(kafka_log(settings, is_read_only=True)) as log:
                installation.topics(log).check()


def _on_redis(settings: Config, data_dir: DataDir, stack: ExitStack) -> QueueStore:
    """Return the queues on Redis, closed with the stack. Raises ConflictError: they are not those of these accounts."""
    queues = stack.enter_context(closing(redis_queues(settings)))
    installation_of(settings, data_dir).redis_queues(queues).check()
    return queues


def _connected(settings: Config, data_dir: DataDir, stack: ExitStack) -> Caller:
    """Return a way to HBase of this command's own, closed with the stack. Raises ConflictError: the stores are not those of these accounts."""
    caller = _way(settings, stack)
    owned_tables(installation_of(settings, data_dir), caller, needed_tables(settings, data_dir), settings).check()
    return caller


def _way(settings: Config, stack: ExitStack) -> Caller:
    return stack.enter_context(from_settings.direct_caller(settings.hbase))


@contextmanager
def _reading(path: Path, schema: Schema) -> Iterator[Database | None]:
    if not path.exists():
        yield None
        return
    try:
        with closing(ReadOnlyDatabase(path, schema)) as database:
            yield database
    except sqlite3.Error as error:
        raise UnavailableError(f"{path.name}: cannot be read: {error}") from None


def warn_of_damage(reason: str) -> None:
    output.say(f"iothub: warning: {reason}: passed over")


def _report(name: str, text: str) -> None:
    if text:
        output.say(f"iothub: warning: {name}: {text}")
