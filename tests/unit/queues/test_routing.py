"""Several queue drivers as one store: where a tenant's queues are, and what a failure of one driver does to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from iothub.base.errors import BackendError, NotFoundError
from iothub.testing.clock import ManualClock
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    DueRecord,
    Inbound,
    Move,
    MoveKind,
    Place,
    QueueLimits,
    QueueStore,
    Rebuilt,
    Refused,
)
from iothub_services.queues.routing import RoutingStore
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database

ACME, BETA = 7, 8


class Server(MemoryQueues):
    """As a driver on a server: durable at once, and what a failed group has done is not done again with the same objects."""

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[int, tuple[Append, Appended]] = {}
        self._batch: list[Append] = []

    @contextmanager
    def group(self) -> Iterator[None]:
        self._batch = []
        yield
        for op in self._batch:
            self._done.pop(id(op), None)

    def append(self, batch: list[Append]) -> list[Appended]:
        self._batch = batch
        new = [op for op in batch if id(op) not in self._done]
        for op, answer in zip(new, super().append(new), strict=True):
            self._done[id(op)] = (op, answer)
        return [self._done[id(op)][1] for op in batch]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def queues(server: Server) -> RoutingStore:
    """Queue 1 of one tenant is on the server, queue 2 of the other one in the file."""
    made = RoutingStore({"server": server, "file": MemoryQueues()}, "server")
    made.choose(BETA, "file")
    made.create(ACME, 1, QueueLimits())
    made.create(BETA, 2, QueueLimits())
    return made


def message(number: int, *queue_ids: int, qos: int = 1, inbound: Inbound | None = None) -> Append:
    deliveries = tuple(Delivery(queue_id, qos) for queue_id in queue_ids)
    return Append(number.to_bytes(16), b"m%d" % number, 0, deliveries, inbound)


def test_tenant_has_the_driver_that_was_chosen_for_it(queues: RoutingStore, server: Server) -> None:
    assert (queues.home(1), queues.home(2), queues.home(9)) == ("server", "file", None)
    assert server.list_queues(BETA) == []


def test_tenant_that_has_queues_stays_with_their_driver(server: Server) -> None:
    """The settings of the next start choose another one, which counts for tenants without queues."""
    server.create(ACME, 1, QueueLimits())
    later = RoutingStore({"server": server, "file": MemoryQueues()}, "file")
    assert [stats.queue_id for stats in later.list_queues(ACME)] == [1]
    later.list_queues(BETA)

    with capture_logs() as lines:
        later.choose(ACME, "file")
        later.choose(BETA, "file")
    later.create(ACME, 2, QueueLimits())
    later.create(BETA, 3, QueueLimits())

    assert [later.home(queue_id) for queue_id in (1, 2, 3)] == ["server", "server", "file"]
    assert [(line["tenant"], line["driver"], line["chosen"]) for line in lines] == [(ACME, "server", "file")]


def test_tenant_is_found_where_its_queues_are_though_another_driver_was_chosen_first(server: Server) -> None:
    """A list that comes after the choice counts."""
    server.create(ACME, 1, QueueLimits())
    later = RoutingStore({"file": MemoryQueues(), "server": server}, "file")
    later.choose(ACME, "file")
    later.list_queues(ACME)

    later.create(ACME, 2, QueueLimits())

    assert later.home(2) == "server"


def test_queue_of_another_hub_is_found_where_it_is(server: Server) -> None:
    """It was made behind this store's back."""
    later = RoutingStore({"server": server, "file": MemoryQueues()}, "file")
    server.create(ACME, 1, QueueLimits())

    assert later.claim(1, b"hub").epoch == 1
    assert later.append([message(1, 1)])[0].positions == (1,)
    with pytest.raises(NotFoundError):
        later.claim(9, b"hub")


def test_messages_of_many_tenants_are_answered_in_their_order(queues: RoutingStore) -> None:
    """And of a queue that is gone it is said so."""
    answers = queues.append([message(1, 1), message(2, 2), message(3, 9), message(4, 1, 9), message(5, 2)])

    gone = int(Refused.GONE)
    assert [answer.positions for answer in answers] == [(1,), (1,), (gone,), (2, gone), (2,)]


def test_moves_of_many_tenants_are_answered_in_their_order(queues: RoutingStore) -> None:
    epochs = {queue_id: queues.claim(queue_id, b"hub").epoch for queue_id in (1, 2)}
    queues.append([message(1, 1), message(2, 2)])
    asked = [(2, epochs[2]), (9, 1), (1, epochs[1]), (1, epochs[1] - 1)]

    assert queues.apply([Move(MoveKind.ACK, queue_id, epoch, 1) for queue_id, epoch in asked]) == [
        True,
        False,
        True,
        False,
    ]


def test_message_goes_whole_to_the_driver_of_its_tenant(queues: RoutingStore, server: Server) -> None:
    """With the publisher's own queue: a repeated PUBLISH at QoS 2 is a duplicate."""
    queues.create(ACME, 3, QueueLimits())
    epoch = queues.claim(3, b"hub").epoch
    first, again = (message(number, 1, qos=2, inbound=Inbound(3, epoch, 5)) for number in (1, 2))

    assert queues.append([first])[0].positions == (1,)
    assert queues.append([again])[0].is_duplicate
    assert server.tails([1]) == {1: 1}


def test_message_for_queues_of_several_drivers_is_refused(queues: RoutingStore, server: Server) -> None:
    """Hubs with different settings have made them: nobody gets it, rather than some in silence, and the error says what to do."""
    with pytest.raises(
        BackendError, match=r"queue 1 is with server, queue 2 is with file; give every hub the same"
    ) as caught:
        queues.append([message(1, 1, 2)])

    assert (caught.value.retryable, caught.value.is_written) == (False, False)
    assert queues.tails([1, 2]) == {1: 0, 2: 0}


def test_group_that_is_repeated_appends_once(tmp_path: Path, server: Server) -> None:
    """The server has its tenant's message already when the file's commit fails; the file has nothing of its own."""
    file = SqliteQueues(open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), lambda _, text: pytest.fail(text)))
    queues = RoutingStore({"server": server, "sqlite": cast("QueueStore", file)}, "server")
    queues.choose(BETA, "sqlite")
    queues.create(ACME, 1, QueueLimits())
    queues.create(BETA, 2, QueueLimits())
    batch = [message(1, 1), message(2, 2)]

    def fail() -> None:
        with queues.group():
            queues.append(batch)
            raise BackendError("disk full", retryable=True)

    with pytest.raises(BackendError):
        fail()
    assert queues.tails([1, 2]) == {1: 1, 2: 0}
    with queues.group():
        assert [answer.positions for answer in queues.append(batch)] == [(1,), (1,)]

    assert queues.tails([1, 2]) == {1: 1, 2: 1}
    queues.close()


def test_group_of_the_last_driver_ends_first() -> None:
    """Its commit may fail: then the others must still know what they have done."""
    ended: list[str] = []

    class Noting(MemoryQueues):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        @contextmanager
        def group(self) -> Iterator[None]:
            yield
            ended.append(self._name)

    with RoutingStore({"server": Noting("server"), "sqlite": Noting("sqlite")}, "server").group():
        pass

    assert ended == ["sqlite", "server"]


def test_all_drivers_are_summed_and_dropped(queues: RoutingStore) -> None:
    queues.append([message(1, 1), message(2, 2)])

    assert (queues.tenant_usage(ACME).messages, queues.tenant_usage(BETA).messages) == (1, 1)
    assert queues.drop(1) == 1
    assert queues.drop(1) == 0
    assert queues.drop_tenant(BETA) == 1


def test_tenant_that_was_dropped_may_get_another_driver(queues: RoutingStore) -> None:
    queues.drop_tenant(BETA)
    queues.choose(BETA, "server")

    queues.create(BETA, 3, QueueLimits())

    assert queues.home(3) == "server"


class Damaged(MemoryQueues):
    """As a file that has lost a page."""

    def __init__(self) -> None:
        super().__init__()
        self.needs_rebuild = True
        self.asked: list[tuple[list[Place], int]] = []

    def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt:
        self.needs_rebuild = False
        self.asked.append((list(places), now_us))
        return Rebuilt(len(places), 5, 1)


def test_only_queues_that_no_driver_has_are_rebuilt(server: Server) -> None:
    """The damaged file gets those back that it had; what is on the server was never lost."""
    damaged = Damaged()
    server.create(ACME, 1, QueueLimits())
    routing = RoutingStore({"server": server, "file": damaged}, "server")
    places = [Place(ACME, 1, 1), Place(BETA, 2, 1), Place(BETA, 3, 1)]
    assert routing.needs_rebuild

    assert routing.rebuild(places, 99) == Rebuilt(2, 5, 1)

    assert damaged.asked == [(places[1:], 99)]
    assert not routing.needs_rebuild
    assert routing.rebuild(places, 99) == Rebuilt()


class DamagedServer(Server):
    """A server with a damaged queue: it has no tail, and can be dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped: list[int] = []

    def drop(self, queue_id: int) -> int:
        self.dropped.append(queue_id)
        return 0


def test_queue_that_no_driver_knows_is_dropped_by_each() -> None:
    """A damaged one is there for nobody, but what is left of it has to go."""
    server = DamagedServer()
    queues = RoutingStore({"file": MemoryQueues(), "server": server}, "file")

    assert queues.append([message(1, 1)]) == [Appended((int(Refused.GONE),))]
    assert queues.drop(1) == 0
    assert server.dropped == [1]


@pytest.mark.parametrize("verb", ["tails", "existing", "stats_of", "apply", "set_limits", "expire_unsent"])
def test_queues_that_nobody_has_are_looked_for_together(
    server: Server, queues: RoutingStore, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Each look is a round trip to every driver: not one for each of thousands whose server was emptied."""
    looks: list[list[int]] = []

    def existing(queue_ids: Sequence[int]) -> set[int]:
        looks.append(list(queue_ids))
        return set()

    monkeypatch.setattr(server, "existing", existing)
    gone = [101, 102, 103]
    asked: dict[str, Callable[[], object]] = {
        "tails": lambda: queues.tails(gone),
        "existing": lambda: queues.existing(gone),
        "stats_of": lambda: queues.stats_of(gone),
        "apply": lambda: queues.apply([Move(MoveKind.ACK, queue_id, 1, 1) for queue_id in gone]),
        "set_limits": lambda: queues.set_limits([(queue_id, QueueLimits()) for queue_id in gone]),
        "expire_unsent": lambda: queues.expire_unsent(0, [DueRecord(ACME, queue_id, 1) for queue_id in gone]),
    }

    answer = asked[verb]()

    assert looks == [gone]
    expected: dict[str, object] = {
        "tails": {},
        "existing": set(),
        "stats_of": {},
        "apply": [False] * 3,
        "expire_unsent": (),
    }
    assert answer == expected.get(verb)
