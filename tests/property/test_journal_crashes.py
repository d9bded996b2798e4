"""The queues with a journal, killed at any step, on a disk that loses unsynced sectors, fails and lies: what was answered is there, once.

What was under way when the process died is there as a whole, or not at all.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError, NotFoundError
from iothub.testing.clock import ManualClock
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import Append, Delivery, Inbound, Move, MoveKind, Overflow, QueueLimits, QueueStore
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.sqlite.database import open_database
from tests.support.night import by_day
from tests.support.operated_queues import OperatedQueues
from tests.support.servers.losing_disk import LosingDisk, abandon
from tests.support.work_beside import Later

QUEUES = range(1, 5)
TENANT = 1

Do = Callable[[QueueStore], object]


class Killed(BaseException):
    """The process is gone: nobody catches that."""


class KillingDisk(LosingDisk):
    """Ends the process at one of its calls, before or after it is done."""

    def __init__(self, chance: random.Random, on_kill: Callable[[], None]) -> None:
        super().__init__(chance)
        self._on_kill = on_kill
        self.steps = 0  # until the end, 0: none

    def step(self) -> None:
        self.steps -= 1
        if not self.steps:
            self._kept = copy.deepcopy((self._files, self._folders))
            self._on_kill()
            raise Killed

    def start_again(self) -> None:
        if self.steps <= 0:
            self._files, self._folders = self._kept
        self.steps = 0
        self.crash()

    def create(self, path: Path, size_bytes: int) -> int:
        self.step()
        return super().create(path, size_bytes)

    def write(self, descriptor: int, data: bytes | bytearray, at: int) -> None:
        self.step()
        super().write(descriptor, data, at)

    def sync(self, descriptor: int) -> None:
        self.step()
        super().sync(descriptor)
        self.step()

    def sync_folder(self, folder: Path) -> None:
        self.step()
        super().sync_folder(folder)

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)

    def rename(self, path: Path, new: Path) -> None:
        self.step()
        super().rename(path, new)


class Machine:
    """One data directory, and what it must hold: `may_be` if what was under way is there."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.generation = 0
        self.disk = KillingDisk(self.chance, self._copy)
        self.must_be = MemoryQueues()
        self.may_be: MemoryQueues | None = None
        self._path().mkdir()
        self.store = self._open()

    def _path(self) -> Path:
        return self.directory / str(self.generation)

    def _copy(self) -> None:
        """The files of the tables as they are now: the next process gets them."""
        following = self.directory / str(self.generation + 1)
        following.mkdir()
        for name in ("queues.db", "queues.db-wal"):
            if (self._path() / name).exists():
                shutil.copy(self._path() / name, following / name)

    def _open(self) -> JournaledQueues:
        database = open_database(self._path() / "queues.db", SCHEMA, ManualClock(), pytest.fail)
        database.writer.execute("PRAGMA synchronous=OFF")  # the machine goes on: what was written is there
        database.before_commit.append(lambda _connection: self.disk.step())
        commit = database.commit

        def commit_in_steps() -> None:
            self.disk.step()
            commit()
            self.disk.step()

        database.commit = commit_in_steps  # type: ignore[method-assign]
        made = self.chance.choice(
            (JournaledQueues, OperatedQueues)
        )  # whose appends come as the port or as the writer has them
        segments = self.chance.choice((1, 2, 3, 6, 30))  # that may be there: all are flushed early, late, or not at all
        return made(
            database,
            pytest.fail,
            disk=self.disk,
            beside=lambda _name: Later(self.chance),
            segment_bytes=4_096,
            journal_bytes=segments * 4_096,
        )

    def live(self) -> None:
        """Do groups until the process is killed."""
        self.disk.steps = self.chance.randrange(1, 60)
        try:
            while True:
                self.disk.failures = self.chance.choice((0.0, 0.0, 0.2))
                self.disk.read_failures = self.chance.choice((0.0, 0.0, 0.2))
                self._group([self._verb() for _ in range(self.chance.randrange(1, 5))])
                if self.chance.random() < 0.3:
                    with suppress(BackendError):
                        self.chance.choice((self.store.probe, self.store.put_into_tables))()  # at any time
        except Killed:
            self.disk.failures = self.disk.read_failures = 0.0

    def _group(self, verbs: list[Do]) -> None:
        """As the thread with the group commit does it: again and again, until it is done."""
        wanted = copy.deepcopy(self.must_be)
        expected = [answer(verb, wanted) for verb in verbs]
        while True:
            try:
                with self.store.group():
                    self.may_be = wanted
                    answers = [answer(verb, self.store) for verb in verbs]
            except BackendError:
                continue
            assert answers == expected, (answers, expected)
            self.must_be, self.may_be = wanted, None
            return

    def die(self) -> None:
        if self.disk.steps > 0:
            self._copy()
        abandon(self.store)
        self._start()
        found = state(self.store)
        if self.may_be is not None and found == state(self.may_be):
            self.must_be = self.may_be
        self.may_be = None
        assert found == state(self.must_be)

    def _start(self) -> None:
        """Begin the next process, which may be killed while it starts, and so may those after it."""
        while True:
            self.generation += 1
            self.disk.start_again()
            self.disk.steps = self.chance.choice((0, 0, self.chance.randrange(1, 12)))
            try:
                self.store = self._open()
            except Killed:
                continue
            self.disk.steps = 0
            return

    def _verb(self) -> Do:
        chance, queue_id = self.chance, self.chance.choice(QUEUES)
        kind = chance.randrange(13)
        if kind == 0:
            limits = QueueLimits(chance.choice((0, 3)), chance.choice((0, 900)), chance.choice(list(Overflow)))
            return lambda store: store.create(TENANT, queue_id, limits)
        if kind == 1:
            return lambda store: store.drop(queue_id)
        if kind == 12:
            return lambda store: purged(store, queue_id)
        if kind in {2, 3}:
            return lambda store: store.claim(queue_id, b"reader")
        if kind == 4:
            return lambda store: store.expire(100, 1_000)
        if kind < 8:
            move = Move(chance.choice(list(MoveKind)), queue_id, chance.randrange(1, 3), chance.randrange(1, 8))
            return lambda store: store.apply([move])
        batch = [self._append() for _ in range(chance.randrange(1, 4))]
        return lambda store: store.append(batch)

    def _append(self) -> Append:
        chance = self.chance
        queues = chance.sample(QUEUES, chance.randrange(1, 4))
        deliveries = tuple(Delivery(queue_id, chance.randrange(3), 1, (2, 3)) for queue_id in queues)
        inbound = Inbound(chance.choice(QUEUES), 1, chance.randrange(1, 5)) if chance.random() < 0.3 else None
        body = chance.randbytes(chance.randrange(1, 300))
        return Append(chance.randrange(4).to_bytes(16), body, chance.choice((0, 100)), deliveries, inbound)


def purged(store: QueueStore, queue_id: int) -> int:
    """Empty a queue within one group. While a commit is under way nothing is purged: whoever asks for the tables has waited for it."""
    messages = upto = 0
    while True:
        more, upto = store.purge(queue_id, upto)
        messages += more
        if not upto:
            return messages
        store.list_queues(TENANT)


def answer(verb: Do, store: object) -> object:
    try:
        return verb(store)  # type: ignore[arg-type]
    except (ConflictError, NotFoundError) as error:
        return type(error)


def state(store: MemoryQueues | JournaledQueues) -> object:
    """Everything that a store has of its queues."""
    stats = store.list_queues(TENANT)
    pages = [store.read(each.queue_id, each.epoch, 0, 100, 1 << 20) for each in stats]
    return stats, pages, [marks(store, each.queue_id) for each in stats], store.tenant_usage(TENANT)


def marks(store: MemoryQueues | JournaledQueues, queue_id: int) -> object:
    """What only a claim says, without one."""
    if isinstance(store, MemoryQueues):
        queue = store._queues[queue_id]
        return queue.reserved, queue.released, queue.inbound
    row = store._rows.get(queue_id)
    assert row is not None
    return row.reserved, store._table.released(row), store._table.inbound(row)


@pytest.mark.parametrize("seed", range(by_day(20, 3_000)))
def test_what_was_answered_is_there_once_after_any_crash(seed: int, tmp_path: Path) -> None:
    machine = Machine(tmp_path, seed)
    for _ in range(5):
        machine.live()
        machine.die()
    machine.store.close()
