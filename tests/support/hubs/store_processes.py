"""A store process's server inside a test, over real files, and connections to it that are cut where a test wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from iothub.base.errors import BackendError
from iothub.testing.clock import ManualClock
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.sqlite.schema import SCHEMA as QUEUES
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.retained.sqlite.store import SCHEMA as RETAINED
from iothub_services.retained.sqlite.store import SqliteRetained
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import Database, Schema, open_database
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints
from iothub_services.state.sqlite.store import SCHEMA as STATES
from iothub_services.state.sqlite.store import SqliteStates
from iothub_services.store_process.checkpoints import CheckpointFile, checkpoint_port
from iothub_services.store_process.connection import StoreConnection
from iothub_services.store_process.events import event_port
from iothub_services.store_process.frames import pack
from iothub_services.store_process.ports import Port
from iothub_services.store_process.queues import QueuePort, UsageChanges
from iothub_services.store_process.requests import Requests
from iothub_services.store_process.retained import retained_port
from iothub_services.store_process.server import StoreServer
from iothub_services.store_process.states import state_port
from iothub_services.store_process.verbs import Verb

SOCKET = "store.sock"


class StoreProcess:
    """What a store process has, in threads of the test's. It may be stopped and started again."""

    def __init__(self, directory: Path, *, has_journal: bool = False) -> None:
        self.directory = directory
        self.has_journal = has_journal
        self.path = directory / SOCKET
        self.clock = ManualClock()
        self._open: list[Callable[[], None]] = []
        self.start()

    def start(self) -> None:
        self.commits = CommitLock()
        queues = self._file("queues.db", QUEUES)
        retained, events = self._file("retained.db", RETAINED), self._file("events.db", EVENTS)
        usage = UsageChanges()
        requests = Requests(queues, self.clock)
        self.queues = SqliteQueues(queues, usage.changed)
        if self.has_journal:
            self.queues = journaled = JournaledQueues(queues, self._alarm, usage.changed, segment_bytes=1 << 20)
            requests.keep_with(journaled.keep_answers)
            self._open.append(journaled.close)
        self.ports: dict[str, Port] = {
            "queues": QueuePort(self.queues, usage, self.clock, requests),
            "retained": retained_port(SqliteRetained(retained), self.clock, Requests(retained, self.clock)),
            "events": event_port(SqliteEvents(events), self.clock, Requests(events, self.clock)),
            "states": state_port(SqliteStates(self._file("state.db", STATES)), self.clock),
            "checkpoints": checkpoint_port(
                CheckpointFile(self.directory / "checkpoints.db", self._checkpoints), self.clock
            ),
        }
        self.server = StoreServer(self.path, self.ports)
        self.server.start()

    def close(self) -> None:
        assert self.server.close()
        while self._open:
            self._open.pop()()

    def wait_for(self, requests: int) -> None:
        """Wait until so many requests are with the queues' thread, that of a commit that runs included."""
        port = self.ports["queues"]
        while port.waiting < requests:
            time.sleep(0.001)

    def restart(self) -> None:
        self.close()
        self.start()

    def _checkpoints(self) -> SqliteCheckpoints:
        return SqliteCheckpoints(self._file("checkpoints.db", CHECKPOINTS))

    @staticmethod
    def _alarm(word: str, text: str) -> None:
        raise AssertionError(f"{word}: {text}")

    def _file(self, name: str, schema: Schema) -> Database:
        database = open_database(self.directory / name, schema, self.clock, self._alarm, self.commits)
        self._open.append(database.close)
        return database


@contextmanager
def store_process(directory: Path, *, has_journal: bool = False) -> Iterator[StoreProcess]:
    process = StoreProcess(directory, has_journal=has_journal)
    try:
        yield process
    finally:
        process.close()


class CutConnection(StoreConnection):
    """A connection on which the first attempt of each request is lost: before it was sent, or with its answer."""

    is_cut_after = False
    cut: set[str] | None = None  # these verbs; None: all

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._were_lost: set[bytes] = set()

    def _exchange(self, verb: str, args: tuple[object, ...], shape: Callable[[object], Any]) -> Any:
        this = pack((verb, args))
        if (self.cut is not None and verb not in self.cut) or this in self._were_lost:
            return super()._exchange(verb, args, shape)
        self._were_lost.add(this)
        if self.is_cut_after:
            super()._exchange(verb, args, shape)
        else:
            self._connected()
            self._asked += 1
        raise self._lost("was lost in a test", is_written=True)


def cut_connection(verbs: set[str] | None, *, is_after: bool) -> type[StoreConnection]:
    """Return what makes connections on which these verbs are lost once, before or after they were done."""
    return type("Cut", (CutConnection,), {"cut": verbs, "is_cut_after": is_after})


class Patient:
    """A store whose verbs are repeated as its thread does: with the same objects, until they are done."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._repeat, found) if callable(found) and name not in ("group", "close") else found

    @staticmethod
    def _repeat(verb: Callable[..., object], *args: object, **kwargs: object) -> object:
        args = tuple([list(arg) if isinstance(arg, Iterator) else arg for arg in args])
        for _ in range(5):
            try:
                return verb(*args, **kwargs)
            except BackendError as error:
                if not error.retryable:
                    raise
        return verb(*args, **kwargs)


LOST = ("nothing lost", "requests lost", "answers lost")


@contextmanager
def in_a_worker(
    driver: Callable[..., Any], verbs: Mapping[str, Verb], lost: str, directory: Path, *, has_journal: bool = False
) -> Iterator[Any]:
    """Open a worker's driver. Lost is one of `LOST`: all requests, once each before the store process has them; or answers.

    Of the answers, those that are kept or asked for again (`recall`), and those of verbs that only read.
    """
    connection: type[StoreConnection] = StoreConnection
    if lost == "requests lost":
        connection = cut_connection(None, is_after=False)
    elif lost == "answers lost":
        again = {name for name, verb in verbs.items() if verb.is_kept or not verb.is_write}
        connection = cut_connection({"recall", *again}, is_after=True)
    with store_process(directory, has_journal=has_journal) as process:
        store = driver(process.path, connection=connection)
        try:
            yield store if connection is StoreConnection else Patient(store)
        finally:
            store.close()
