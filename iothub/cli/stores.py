"""The session-event log, the session states and the checkpoints, for the commands that read them, whether or not a hub runs.

Knows no noun. Opens files read-only and never repairs them; only the hub does. Opens its own connections to stores on servers.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeVar, cast

from iothub.base.errors import ConflictError, NotFoundError
from iothub.cli import output
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.stores.choices import queue_drivers
from iothub.hub.stores.drivers import Drivers, kafka_log, needed_tables, owned_tables, redis_queues
from iothub.hub.stores.installation import installation_of
from iothub_services.events.port import NOWHERE, EventLog, Offsets
from iothub_services.hbase import from_settings
from iothub_services.sqlite.database import Database, Schema, backend_error, connect
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore

T = TypeVar("T")

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
    with _reading(data_dir, settings, Drivers.event_log) as log:
        yield log


@contextmanager
def reading_states(data_dir: DataDir, settings: Config = _DEFAULTS) -> Iterator[StateStore | None]:
    """Open the session states to read; None when no hub has made the file yet."""
    with _reading(data_dir, settings, Drivers.states) as states:
        yield states


@contextmanager
def reading_checkpoints(data_dir: DataDir, settings: Config = _DEFAULTS) -> Iterator[CheckpointStore | None]:
    """Open the checkpoints to read; None when no job has made any yet."""
    with _reading(data_dir, settings, Drivers.checkpoints) as checkpoints:
        yield checkpoints


def applied_offsets(data_dir: DataDir, settings: Config = _DEFAULTS) -> Offsets:
    """Return how far the session states include the log; nowhere when no hub has made them yet."""
    with reading_states(data_dir, settings) as states:
        return NOWHERE if states is None else states.applied_offsets()


def require_own_stores(data_dir: DataDir, settings: Config) -> None:
    """Raise ConflictError when a store on a server, or the files beside, are not those of these accounts."""
    installation = installation_of(settings, data_dir)
    installation.check_directory(data_dir)
    if needed_tables(settings, data_dir):
        with from_settings.direct_caller(settings.hbase) as caller:
            owned_tables(installation, caller, needed_tables(settings, data_dir), settings).check()
    if "redis" in queue_drivers(settings, data_dir):
        with closing(redis_queues(settings)) as queues:
            installation.redis_queues(queues).check()
    if settings.events.driver == "kafka":
        with closing(kafka_log(settings, is_read_only=True)) as log:
            installation.topics(log).check()


@contextmanager
def _reading(data_dir: DataDir, settings: Config, open_store: Callable[[Drivers], T | None]) -> Iterator[T | None]:
    """Open a store with connections of this command's own. None: it is not there yet. Raises ConflictError: it is not of these accounts."""
    with ExitStack() as stack:
        drivers = Drivers(
            settings,
            data_dir,
            lambda path, schema: stack.enter_context(_reading_file(path, schema)),
            lambda: stack.enter_context(from_settings.direct_caller(settings.hbase)),
            lambda: installation_of(settings, data_dir),
            is_read_only=True,
        )
        try:
            store = open_store(drivers)
            if "Kafka" in drivers.needed:  # the others are closed with their file or connection
                stack.enter_context(closing(cast("EventLog", store)))
                drivers.needed["Kafka"]()
            for owned in drivers.owned.values():
                owned.check()
        except NotFoundError:
            store = None
        yield store


@contextmanager
def _reading_file(path: Path, schema: Schema) -> Iterator[Database]:
    if not path.exists():
        raise NotFoundError(f"{path.name} is not there yet")
    try:
        with closing(ReadOnlyDatabase(path, schema)) as database:
            yield database
    except sqlite3.Error as error:
        raise backend_error(error, path, is_committing=False) from None


def warn_of_damage(reason: str) -> None:
    output.say(f"iothub: warning: {reason}: passed over")
