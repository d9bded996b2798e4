"""The session-event log, the session states and the checkpoints, for the commands that read them, whether or not a hub runs.

Knows no noun. Opens files read-only and never repairs them; only the hub does. Opens its own connections to stores on servers.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import cast

from iothub.base.errors import ConflictError, NotFoundError
from iothub.cli import output
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.drivers import (
    hbase_checkpoints,
    hbase_states,
    kafka_log,
    needed_tables,
    owned_tables,
    queue_drivers,
    redis_queues,
)
from iothub.hub.installation import installation_of
from iothub_services.events.port import NOWHERE, EventLog, Offsets
from iothub_services.events.sqlite.log import SCHEMA as EVENTS_SCHEMA
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.hbase import from_settings
from iothub_services.hbase.caller import Caller
from iothub_services.sqlite.database import Database, Schema, backend_error, connect
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS_SCHEMA
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints
from iothub_services.state.sqlite.store import SCHEMA as STATE_SCHEMA
from iothub_services.state.sqlite.store import SqliteStates

_DEFAULTS = Config()


class ReadOnlyDatabase(Database):
    """A file that another process may be writing: every statement sees what is committed, nothing is changed."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        self.schema = schema
        self.before_commit = []
        self.after_commit = []
        self.on_rollback = []
        self._reading = threading.Lock()
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
                "use the version of the program that the hub runs"
            )


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


def require_own_stores(data_dir: DataDir, settings: Config) -> None:
    """Raise ConflictError when a store on a server, or the files beside, are not those of these accounts."""
    with ExitStack() as stack:
        installation = installation_of(settings, data_dir)
        installation.check_directory(data_dir)
        if needed_tables(settings, data_dir):
            _connected(settings, data_dir, stack)
        if "redis" in queue_drivers(settings, data_dir):
            queues = stack.enter_context(closing(redis_queues(settings)))
            installation.redis_queues(queues).check()
        if settings.events.driver == "kafka":
            with closing(kafka_log(settings, is_read_only=True)) as log:
                installation.topics(log).check()


def _connected(settings: Config, data_dir: DataDir, stack: ExitStack) -> Caller:
    """Return a way to HBase of this command's own, closed with the stack. Raises ConflictError: the stores are not those of these accounts."""
    caller = stack.enter_context(from_settings.direct_caller(settings.hbase))
    owned_tables(installation_of(settings, data_dir), caller, needed_tables(settings, data_dir), settings).check()
    return caller


@contextmanager
def _reading(path: Path, schema: Schema) -> Iterator[Database | None]:
    if not path.exists():
        yield None
        return
    try:
        with closing(ReadOnlyDatabase(path, schema)) as database:
            yield database
    except sqlite3.Error as error:
        raise backend_error(error, path, is_committing=False) from None


def warn_of_damage(reason: str) -> None:
    output.say(f"iothub: warning: {reason}: passed over")
