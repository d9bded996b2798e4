"""The stores in files of the data directory: opened by this process, or asked of the store process that has them for all workers.

Knows no setting. Which of a hub's stores are in files is `iothub.hub.stores.drivers`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, cast

from iothub.config.datadir import DataDir
from iothub_services.events.port import EventLog
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.queues.journal.segments import is_left
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import JournalFigures, QueueStore
from iothub_services.queues.sqlite.schema import SCHEMA as QUEUES
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.retained.port import RetainedStore
from iothub_services.retained.sqlite.store import SCHEMA as RETAINED
from iothub_services.retained.sqlite.store import SqliteRetained
from iothub_services.sqlite.database import Database, Schema
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints
from iothub_services.state.sqlite.store import SCHEMA as STATES
from iothub_services.state.sqlite.store import SqliteStates
from iothub_services.store_process.checkpoints import RemoteCheckpoints
from iothub_services.store_process.events import RemoteEvents
from iothub_services.store_process.queues import RemoteQueues
from iothub_services.store_process.retained import RemoteRetained
from iothub_services.store_process.states import RemoteStates

Alarm = Callable[[str, str], None]
OpenFile = Callable[[Path, Schema], Database]


class Embedded(Protocol):
    """Opens each store that is in a file."""

    def events(self) -> EventLog: ...

    def queues(self) -> QueueStore: ...

    def states(self) -> StateStore: ...

    def retained(self) -> RetainedStore: ...

    def checkpoints(self) -> CheckpointStore | None:
        """None: there are none, since no job has made any."""

    def journal_figures(self) -> JournalFigures:
        """Return what the journal of the queues is doing."""


def settle_journal(data_dir: DataDir, open_file: Callable[[], Database], on_alarm: Alarm) -> None:
    """Put into `queues.db` what a hub has left in its journal. Raises BackendError: nobody else may write then."""
    if is_left(data_dir.queues):
        queues = JournaledQueues(open_file(), on_alarm)
        try:
            queues.put_into_tables()
        finally:
            queues.close()


class OwnFiles:
    """Fulfils `Embedded`: this process has the files."""

    def __init__(self, data_dir: DataDir, open_file: OpenFile, on_alarm: Alarm, *, journal_bytes: int) -> None:
        """`journal_bytes`: of the queues' journal, 0: they have none."""
        self._data_dir = data_dir
        self._open_file = open_file
        self._on_alarm = on_alarm
        self._journal_bytes = journal_bytes
        self._queues: SqliteQueues | None = None

    def events(self) -> EventLog:
        return SqliteEvents(self._open_file(self._data_dir.events, EVENTS))

    def queues(self) -> QueueStore:
        open_file = partial(self._open_file, self._data_dir.queues, QUEUES)
        if self._journal_bytes:
            self._queues = JournaledQueues(open_file(), self._on_alarm, journal_bytes=self._journal_bytes)
        else:
            settle_journal(self._data_dir, open_file, self._on_alarm)
            self._queues = SqliteQueues(open_file())
        return cast("QueueStore", self._queues)

    def states(self) -> StateStore:
        return cast("StateStore", SqliteStates(self._open_file(self._data_dir.state, STATES)))

    def retained(self) -> RetainedStore:
        return cast("RetainedStore", SqliteRetained(self._open_file(self._data_dir.retained, RETAINED)))

    def checkpoints(self) -> CheckpointStore | None:
        file = self._data_dir.checkpoints
        return SqliteCheckpoints(self._open_file(file, CHECKPOINTS)) if file.exists() else None

    def journal_figures(self) -> JournalFigures:
        return JournalFigures() if self._queues is None else self._queues.journal_figures


class OfStoreProcess:
    """Fulfils `Embedded`: the store process has the files, and the log is shared with the other workers."""

    def __init__(self, path: Path, on_alarm: Alarm) -> None:
        """`path`: the socket of the store process. `on_alarm`: gets what that has found out about its files, in any thread."""
        self._path = path
        self._on_alarm = on_alarm
        self._queues: RemoteQueues | None = None

    def require(self) -> None:
        """Raise UnavailableError unless it answers."""
        log = RemoteEvents(self._path)
        try:
            log.end()
        finally:
            log.close()

    def events(self) -> EventLog:
        return RemoteEvents(self._path, self._noted)

    def queues(self) -> QueueStore:
        self._queues = RemoteQueues(self._path, self._noted)
        return cast("QueueStore", self._queues)

    def states(self) -> StateStore:
        return RemoteStates(self._path, self._noted)

    def retained(self) -> RetainedStore:
        return RemoteRetained(self._path, self._noted)

    def checkpoints(self) -> CheckpointStore:
        return RemoteCheckpoints(self._path, self._noted)

    def journal_figures(self) -> JournalFigures:
        """As of the last answer that came with new sums of tenants."""
        return JournalFigures() if self._queues is None else self._queues.journal_figures

    def _noted(self, notices: list[tuple[str, str]]) -> None:
        for word, text in notices:
            self._on_alarm(word, text)
