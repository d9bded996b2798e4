"""The store process of a hub with several workers: opens the embedded stores as the start of a single hub does, and serves them to the workers.

Knows which stores are embedded, and no worker. Its supervisor holds the data directory's lock, and starts it before the workers.

Invariant: nothing is served before the files are whole. What a single hub's start puts right of log, states and queues is done here once: of
several workers each would do it for itself, beside the others, which serve already.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from iothub.base import log as logging
from iothub.base.clock import Clock, SystemClock
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.from_settings import configure_log
from iothub.hub.quota_ledger import ledger_of_workers
from iothub.hub.stores.choices import queue_drivers, unused_files
from iothub.hub.stores.embedded import settle_journal
from iothub.hub.stores.queue_repair import lost_queues_text
from iothub.hub.stores.store_alarms import report_lost
from iothub.hub.workers.supervised import BEAT_S, Reporter
from iothub_services.damaged import DamagedRecords
from iothub_services.events.port import reached
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import Place
from iothub_services.queues.sqlite.schema import SCHEMA as QUEUES
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.retained.sqlite.store import SCHEMA as RETAINED
from iothub_services.retained.sqlite.store import SqliteRetained
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import Database, Schema, open_database
from iothub_services.state.service import StateService
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints
from iothub_services.state.sqlite.store import SCHEMA as STATES
from iothub_services.state.sqlite.store import SqliteStates
from iothub_services.store_process import checkpoints, commits, events, ledger, queues, retained, states
from iothub_services.store_process.checkpoints import CheckpointFile
from iothub_services.store_process.ports import Answering
from iothub_services.store_process.queues import KeptQueues, QueuePort, UsageChanges
from iothub_services.store_process.requests import Requests
from iothub_services.store_process.server import StoreServer

_SWITCH_S = 0.0005  # a thread that has an answer to send must not wait 5 ms for one that writes


def run(settings: Config, data_dir: DataDir, report: Reporter) -> int:
    """Serve the stores until SIGTERM or SIGINT; what was accepted is committed, and answered, before it returns. Returns the exit code.

    `report`: hears when workers may come, and from then on that this process runs: also while a commit waits for a slow disk.

    Raises: ConflictError (a file of a newer version, log and states that do not belong together), UnavailableError (a file or the socket cannot
    be used).
    """
    configure_log(settings.log)
    is_stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_stopped.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its settings are those of its start
    sys.setswitchinterval(_SWITCH_S)
    process = StoreProcess(settings, data_dir, SystemClock())
    try:
        process.serve()
        report.ready()
        while not is_stopped.wait(BEAT_S):
            report.beat()
    finally:
        is_whole = process.close()
    return 0 if is_whole else 1


class Notices:
    """What the stores found out about themselves: it is logged here, and each worker raises it as an alarm of its own. Any thread."""

    def __init__(self) -> None:
        self._log = logging.get(__name__)
        self.all: list[tuple[str, str]] = []

    def __call__(self, word: str, text: str) -> None:
        """`word`: as `iothub.hub.stores.store_alarms` has them."""
        if text:
            self._log.warning("alarm of a store", alarm=word, cause=text)
            self.all.append((word, text))


class StoreProcess:
    """The embedded stores that these settings use, each with its port."""

    def __init__(self, settings: Config, data_dir: DataDir, clock: Clock) -> None:
        """Open the files; a damaged one is set aside, its readable rows are copied."""
        self._log = logging.get(__name__)
        self._settings = settings
        self._data_dir = data_dir
        self._clock = clock
        self._commits = CommitLock()
        self._notices = Notices()
        self._closing: list[Callable[[], None]] = []
        self._server: StoreServer | None = None
        try:
            report_lost(data_dir, self._notices, unused_files(settings, data_dir))
            self._ports = self._open()
        except BaseException:
            self._close_files()
            raise

    def serve(self) -> None:
        """Answer from now on. Raises UnavailableError."""
        path = self._data_dir.store_socket
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._server = StoreServer(path, self._ports, self._notices.all)
        self._server.start()
        self._log.info("store process ready", stores=", ".join(sorted(self._ports)))

    def close(self) -> bool:
        """Commit and answer what was accepted, then close the files. False: a store still writes, and was left open."""
        self._log.info("store process stopping")
        is_idle = self._server.close() if self._server is not None else _each_closed(self._ports)
        if is_idle:
            self._close_files()
        return is_idle

    # --- the files

    def _open(self) -> dict[str, Answering]:
        settings, data_dir, clock = self._settings, self._data_dir, self._clock
        ports: dict[str, Answering] = {
            commits.PORT: commits.commit_port(self._commits),
            ledger.PORT: ledger.ledger_port(ledger_of_workers(settings, data_dir, clock).run),
        }
        log = stored = file = None
        if settings.events.driver == "sqlite":
            database = self._file(data_dir.events, EVENTS)
            log = SqliteEvents(database)
            ports[events.PORT] = events.event_port(log, clock, Requests(database, clock))
        if settings.state.driver == "sqlite":
            stored = SqliteStates(self._file(data_dir.state, STATES))
            file = CheckpointFile(data_dir.checkpoints, self._checkpoints)
            ports[states.PORT] = states.state_port(stored, clock)
            ports[checkpoints.PORT] = checkpoints.checkpoint_port(file, clock)
        usage, virtual = UsageChanges(), cast("SqliteQueues | None", None)
        if "sqlite" in queue_drivers(settings, data_dir):
            open_file = partial(self._file, data_dir.queues, QUEUES)
            if not settings.queues.journal:
                settle_journal(data_dir, open_file, self._notices)
            queue_file = open_file()
            requests = Requests(queue_file, clock)
            if settings.queues.journal:
                virtual = journaled = JournaledQueues(
                    queue_file, self._notices, usage.changed, journal_bytes=settings.queues.journal_bytes
                )
                requests.keep_with(journaled.keep_answers)
                self._closing.append(virtual.close)
            else:
                virtual = SqliteQueues(queue_file, usage.changed)
            ports[queues.PORT] = QueuePort(cast("KeptQueues", virtual), usage, clock, requests)
        if log is not None and stored is not None and file is not None:
            self._put_right(log, stored, file, virtual)
        if settings.retained.driver == "sqlite":
            database = self._file(data_dir.retained, RETAINED)
            ports[retained.PORT] = retained.retained_port(SqliteRetained(database), clock, Requests(database, clock))
        return ports

    def _file(self, path: Path, schema: Schema) -> Database:
        database = open_database(path, schema, self._clock, self._notices, self._commits)
        self._closing.append(database.close)
        return database

    def _checkpoints(self) -> SqliteCheckpoints:
        return SqliteCheckpoints(self._file(self._data_dir.checkpoints, CHECKPOINTS))

    def _close_files(self) -> None:
        while self._closing:
            self._closing.pop()()

    # --- after damage

    def _put_right(
        self, log: SqliteEvents, stored: SqliteStates, file: CheckpointFile, virtual: SqliteQueues | None
    ) -> None:
        """Bring log, states and queues together again where one of them was lost, or lost a part. Raises ConflictError: that is not possible."""
        needs_rebuild = virtual is not None and virtual.needs_rebuild
        if _belong_together(log, stored) and not needs_rebuild:
            return  # nothing to load: a store process that starts again is back at once
        service = StateService(log, stored, self._notices, file.if_there(), DamagedRecords(self._notices))
        sessions = service.load()
        service.idle()  # writes the states
        if virtual is None or not needs_rebuild:
            return
        places = [Place(state.tenant_id, state.queue_id, state.epoch) for state in sessions]
        rebuilt = virtual.rebuild(places, int(self._clock.wall() * 1_000_000))
        if rebuilt.queues:
            self._notices("queues_gone", lost_queues_text(rebuilt, len(places)))


def _belong_together(log: SqliteEvents, stored: SqliteStates) -> bool:
    """Say whether the log has every event behind the states, and none of those that they have seen is missing at its end."""
    applied = stored.applied_offsets()
    seen = reached(applied, 0)
    return len(applied) <= 1 and reached(log.begin(), 0) <= seen + 1 and seen <= reached(log.end(), 0)


def _each_closed(ports: dict[str, Answering]) -> bool:
    is_idle = True
    for port in ports.values():
        is_idle &= port.close()
    return is_idle
