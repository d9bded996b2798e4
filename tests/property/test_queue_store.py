"""The SQLite queues, with and without a journal, against the memory ones, over any order of verbs, crashes and housekeeping included."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from iothub.base.errors import BackendError
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import purged
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import Append, Delivery, Inbound, Move, MoveKind, Overflow, QueueLimits
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import Database, open_database
from tests.support.servers.losing_disk import LosingDisk, abandon

QUEUES = range(1, 5)
TENANTS = (1, 2)

limits = st.builds(QueueLimits, st.sampled_from([0, 2, 4]), st.sampled_from([0, 12, 40]), st.sampled_from(Overflow))
deliveries = st.lists(
    st.builds(Delivery, st.sampled_from(range(1, 6)), st.integers(0, 2), st.integers(0, 1), st.just(())),
    max_size=3,
    unique_by=lambda delivery: delivery.queue_id,
).map(tuple)
inbounds = st.none() | st.builds(Inbound, st.sampled_from(range(1, 6)), st.integers(1, 4), st.integers(1, 3))
appends = st.builds(
    Append,
    st.integers(0, 5).map(lambda number: number.to_bytes(16)),
    st.binary(min_size=1, max_size=10),
    st.sampled_from([0, 0, 100, 200]),
    deliveries,
    inbounds,
)
moves = st.builds(Move, st.sampled_from(MoveKind), st.sampled_from(range(1, 6)), st.integers(1, 4), st.integers(1, 6))


class Interrupted(Exception):  # noqa: N818 - a crash is not an error of ours
    """The process died before the commit."""


class QueueStores(RuleBasedStateMachine):
    """Both drivers get the same verbs and must give the same answers."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.model = MemoryQueues()
        self.store = self._open()
        self.tails: dict[int, int] = {}

    def _open(self) -> SqliteQueues:
        return SqliteQueues(self._database())

    def _database(self) -> Database:
        """A killed process, not a power cut: nothing needs to be synced."""
        database = open_database(self.directory / "queues.db", SCHEMA, ManualClock(), self._alarm)
        database.writer.execute("PRAGMA synchronous=OFF")
        return database

    def _end(self) -> None:
        self.store.close()

    def _alarm(self, name: str, text: str) -> None:
        raise AssertionError(f"{name}: {text}")

    @initialize()
    def make_queues(self) -> None:
        for queue_id in QUEUES:
            for store in (self.store, self.model):
                store.create(TENANTS[queue_id % 2], queue_id, QueueLimits())

    @rule(batch=st.lists(appends, min_size=1, max_size=6))
    def append(self, batch: list[Append]) -> None:
        assert self.store.append(batch) == self.model.append(batch)

    @rule(batch=st.lists(appends, min_size=1, max_size=4), moved=st.lists(moves, max_size=3))
    def group(self, batch: list[Append], moved: list[Move]) -> None:
        """One commit for both, as the writer does it."""
        with self.store.group():
            done = (self.store.apply(moved), self.store.append(batch))
        assert done == (self.model.apply(moved), self.model.append(batch))

    @rule(batch=st.lists(appends, min_size=1, max_size=4), moved=st.lists(moves, max_size=3))
    def crash_in_the_middle(self, batch: list[Append], moved: list[Move]) -> None:
        """What was not committed never was; nothing in memory remembers it."""
        try:
            with self.store.group():
                self.store.append(batch)
                self.store.apply(moved)
                self.store.drop(1)
                raise Interrupted
        except Interrupted:
            pass

    @rule(batch=st.lists(moves, min_size=1, max_size=6))
    def apply(self, batch: list[Move]) -> None:
        assert self.store.apply(batch) == self.model.apply(batch)

    @rule(queue_id=st.sampled_from(QUEUES))
    def claim(self, queue_id: int) -> None:
        if queue_id in self.model.tails([queue_id]):
            assert self.store.claim(queue_id, b"w") == self.model.claim(queue_id, b"w")

    @rule(changes=st.dictionaries(st.sampled_from(QUEUES), limits, max_size=3))
    def set_limits(self, changes: dict[int, QueueLimits]) -> None:
        self.store.set_limits(list(changes.items()))
        self.model.set_limits(list(changes.items()))

    @rule(queue_id=st.sampled_from(QUEUES))
    def purge(self, queue_id: int) -> None:
        if queue_id in self.model.tails([queue_id]):
            assert purged(self.store, queue_id) == purged(self.model, queue_id)

    @rule(queue_id=st.sampled_from(QUEUES), first_epoch=st.integers(1, 2))
    def drop_and_make_anew(self, queue_id: int, first_epoch: int) -> None:
        for store in (self.store, self.model):
            store.drop(queue_id)
            store.create(TENANTS[queue_id % 2], queue_id, QueueLimits(), first_epoch)
        self.tails.pop(queue_id, None)

    @rule(queue_id=st.sampled_from(QUEUES))
    def drop(self, queue_id: int) -> None:
        self.store.drop(queue_id)
        self.model.drop(queue_id)
        self.tails.pop(queue_id, None)

    @rule(now_ms=st.sampled_from([100, 200]))
    def expire(self, now_ms: int) -> None:
        assert self.store.expire(now_ms, 100) == self.model.expire(now_ms, 100)

    @rule()
    def kill_and_reopen(self) -> None:
        """The files as a killed process leaves them: a copy taken while they are open."""
        crashed = Path(tempfile.mkdtemp())
        for name in ("queues.db", "queues.db-wal"):
            if (self.directory / name).exists():
                shutil.copy(self.directory / name, crashed / name)
        self._end()
        shutil.rmtree(self.directory)
        self.directory = crashed
        self.store = self._open()

    @rule()
    def idle(self) -> None:
        while self.store.idle():
            pass

    @rule()
    def sweep_everything(self) -> None:
        """After a restart and idle time no body is left without a reference, and none is missing."""
        self.kill_and_reopen()
        self.idle()
        with self.store._reading() as connection:
            kept = {row[0] for row in connection.execute("SELECT id FROM body")}
            needed = {row[0] for row in connection.execute("SELECT body FROM ref")}
        assert kept == needed

    @invariant()
    def both_hold_the_same(self) -> None:
        for tenant_id in TENANTS:
            stats = self.model.list_queues(tenant_id)
            assert self.store.list_queues(tenant_id) == stats
            assert self.store.tenant_usage(tenant_id) == self.model.tenant_usage(tenant_id)
            for each in stats:
                assert self.store.read(each.queue_id, each.epoch, 0, 100, 10_000) == self.model.read(
                    each.queue_id, each.epoch, 0, 100, 10_000
                )

    @invariant()
    def positions_never_go_back(self) -> None:
        """Positions are dense, and never issued again."""
        tails = self.model.tails(list(QUEUES))
        assert self.store.tails(list(QUEUES)) == tails
        for queue_id, tail in tails.items():
            assert tail >= self.tails.get(queue_id, 0)
        self.tails = tails

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)


QueueStores.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestQueueStores = QueueStores.TestCase


class JournaledQueueStores(QueueStores):
    """The same with a journal on a disk that loses what is not synced; checkpoints and groups fail at any time."""

    store: JournaledQueues

    def __init__(self) -> None:
        self.disk = LosingDisk(random.Random(0))
        super().__init__()

    def _open(self) -> JournaledQueues:
        return JournaledQueues(self._database(), self._alarm, disk=self.disk, segment_bytes=8_192)

    def _end(self) -> None:
        abandon(self.store)
        self.disk.crash()

    @rule()
    def checkpoint(self) -> None:
        self.store.probe()

    @rule()
    def restart(self) -> None:
        """A clean end leaves nothing but the tables."""
        self.store.close()
        assert not self.disk.names(self.directory / "queues.journal")
        self.store = self._open()

    @rule(batch=st.lists(appends, min_size=1, max_size=4), moved=st.lists(moves, max_size=3))
    def fail_to_write(self, batch: list[Append], moved: list[Move]) -> None:
        """Nothing of a group that may be on the disk was done; it is not done at a start either, once it is done anew."""
        self.disk.failures = 1.0
        with pytest.raises(BackendError):
            self._do_together(batch, moved)
        self.disk.failures = 0.0
        self.store.probe()

    def _do_together(self, batch: list[Append], moved: list[Move]) -> None:
        with self.store.group():
            self.store.create(1, 6, QueueLimits())
            self.store.append(batch)
            self.store.apply(moved)

    @rule(batch=st.lists(appends, min_size=1, max_size=4))
    def fail_to_commit(self, batch: list[Append]) -> None:
        """What the tables do not take stays in the journal."""
        assert self.store.append(batch) == self.model.append(batch)
        self.store.create(1, 6, QueueLimits())
        finish = self.store._database.before_commit
        finish.append(self._broken)
        with pytest.raises(BackendError):
            self.store.probe()
        finish.remove(self._broken)
        self.store.drop(6)

    @staticmethod
    def _broken(_connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("broken")


JournaledQueueStores.TestCase.settings = QueueStores.TestCase.settings
TestJournaledQueueStores = JournaledQueueStores.TestCase
