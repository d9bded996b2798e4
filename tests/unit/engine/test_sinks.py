"""Sinks: sessions of no client that take what matches a filter, QoS 0 too; who is held back for them, and who is not."""

from __future__ import annotations

from dataclasses import dataclass

from iothub.engine.limits import PlaneLimits, TenantLimits
from iothub.engine.outbox import PublishStore, StoredPublish
from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub.testing.engine import Bench, ManualStore, ack, packets, publish

PUBACK = ack(0x40, 1)


@dataclass(eq=False)
class Room:
    """What a sink's `control` is asked."""

    is_full: bool = False


class Bounded:
    """Takes so many messages."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.most = 0
        self.asked = 0

    @property
    def is_full(self) -> bool:
        self.asked += 1
        return len(appended(self._bench)) >= self.most


@dataclass
class Meter:
    """Lets so many units pass, then asks to wait so long."""

    units: int
    wait_s: float = 5.0

    def take(self, units: int, _now: float) -> float:
        if units > self.units:
            return self.wait_s
        self.units -= units
        return 0.0


def sink(bench: Bench, topic_filter: bytes = b"t/#") -> Session:
    session = Session(bench.tenant, "", "stream:s", True)
    session.is_sink, session.control = True, Room()
    bench.tenant.router.subscribe(Subscription(session, topic_filter, qos=2, retain_as_published=True))
    bench.tenant.sinks += 1
    return session


def appended(bench: Bench) -> list[StoredPublish]:
    return [operation[1] for operation in bench.store.waiting if operation[0] == "append"]


def test_a_sink_is_handed_to_the_store_at_every_qos() -> None:
    """QoS 0 as well, with RETAIN as published; the acknowledgement waits for the store."""
    bench = Bench()
    session = sink(bench)
    client = bench.client("p")

    answer = client.send(publish(b"t/1", b"a") + publish(b"t/2", b"b", 1, 1, retain=True) + publish(b"x", b"c", 1, 2))

    [first, second] = appended(bench)
    assert answer == b""
    assert [(target.session, target.qos, target.retain) for target in first.targets] == [(session, 0, False)]
    assert [(target.session, target.qos, target.retain) for target in second.targets] == [(session, 1, True)]
    bench.plane.stored(second, (0,))
    assert client.take().startswith(PUBACK)


def test_a_message_for_a_sink_alone_has_a_receiver() -> None:
    """5.0 clients hear success, not "no matching subscribers"."""
    bench = Bench()
    sink(bench)
    client = bench.client("p", version=5)

    client.send(publish(b"t/1", b"a", 1, 1, properties=b""))
    bench.plane.stored(appended(bench)[0], (1,))

    assert packets(client.take()) == [(0x40, b"\x00\x01")]


def test_a_full_sink_holds_its_publishers_back_and_nobody_else() -> None:
    """Who publishes elsewhere goes on; who waited goes on when there is room."""
    bench = Bench()
    session = sink(bench)
    session.control.is_full = True
    held, free = bench.client("held"), bench.client("free")

    held.send(publish(b"t/1", b"a", 1, 1))
    free.send(publish(b"x/1", b"a", 1, 1))

    assert (held.transport.is_paused, free.transport.is_paused, appended(bench)) == (True, False, [])
    session.control.is_full = False
    bench.pass_time(0.1)
    assert (held.transport.is_paused, len(appended(bench))) == (False, 1)


def test_no_bound_of_a_fanout_leaves_a_sink_out() -> None:
    """A stream is no receiver among others."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(fanout=1)
    for name in ("a", "b"):
        bench.client(name).subscribe(b"t/1")
    sink(bench)

    bench.client("p").send(publish(b"t/1", b"a"))

    assert len(appended(bench)[0].targets) == 1


def test_a_sink_gets_what_is_delivered_in_slices_at_once() -> None:
    """Receivers without a queue wait for their slice; a sink is like a queue."""
    bench = Bench(PlaneLimits(fanout_slice=4))
    for number in range(20):
        bench.client(f"c{number}").subscribe(b"t/1")
    sink(bench)

    bench.client("p").send(publish(b"t/1", b"a"))

    assert len(appended(bench)) == 1


def test_rates_of_sinks_hold_back_and_are_named() -> None:
    """What one rate has granted is not asked for again while the other one makes the publisher wait."""
    bench = Bench()
    sink(bench)
    bench.tenant.sink_messages = messages = Meter(2)
    bench.tenant.sink_bytes = octets = Meter(4, 0.1)
    client = bench.client("p")

    client.send(publish(b"t/1", b"a", 1, 1) + publish(b"t/1", b"a", 1, 2))
    assert len(appended(bench)) == 1
    octets.units = 4
    bench.pass_time(0.3)

    assert len(appended(bench)) == 2
    assert messages.units == 0


def test_a_spent_allowance_of_sinks_refuses() -> None:
    """A day's window: 5.0 hears 0x97."""
    bench = Bench()
    sink(bench)
    bench.tenant.sink_bytes = Meter(0, -1.0)
    client = bench.client("p", version=5)

    answer = client.send(publish(b"t/1", b"a", 1, 1, properties=b""))

    assert packets(answer) == [(0x40, b"\x00\x01\x97")]
    assert bench.observer.limits == [("sink_bytes", 1)]
    assert appended(bench) == []


def test_sinks_do_not_count_as_persistent_fanout() -> None:
    """Nothing is stored for them in a queue."""
    bench = Bench()
    sink(bench)
    bench.tenant.persistent_fanout = Meter(0)

    bench.client("p").send(publish(b"t/1", b"a", 1, 1))

    assert len(appended(bench)) == 1


def test_publishers_before_a_full_sink_are_read_on_in_their_turn() -> None:
    """No more of them than there is room for: with a hundred thousand, a look at each would hold up every tenant."""
    bench = Bench()
    sink(bench).control = room = Bounded(bench)
    clients = [bench.client(f"c{number}") for number in range(5)]
    for number, client in enumerate(clients):
        client.send(publish(b"t/1", b"%d" % number, 1, 1) + publish(b"t/1", b"%d more" % number, 1, 2))
    clients[1].drop()
    room.asked = 0
    bench.pass_time(0.1)
    assert (room.asked, len(appended(bench))) == (1, 0)

    for most in (1, 3, 5):
        room.most = most
        bench.pass_time(0.1)
    assert [each.message.payload for each in appended(bench)] == [b"0", b"2", b"2 more", b"3", b"3 more"]
    room.most = 100
    bench.pass_time(0.1)

    assert [each.message.payload for each in appended(bench)][5:] == [b"4", b"4 more", b"0 more"]
    assert not bench.plane.turn.before_sinks
    assert not any(client.transport.is_paused for client in clients[2:])


class Queues(PublishStore):
    """What is behind a store of sinks."""

    def __init__(self) -> None:
        self.appended: list[StoredPublish] = []

    def append(self, publish: StoredPublish) -> None:
        self.appended.append(publish)


class SinksInFront(ManualStore):
    """A store that says what is behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = Queues()


def test_store_of_sinks_is_passed_by_tenants_that_have_none() -> None:
    store = SinksInFront()
    bench = Bench(store=store)
    bench.client("kept", queue_id=7).subscribe(b"t/1", 1)
    publisher = bench.client("p")

    publisher.send(publish(b"t/1", b"before", 1, 1))
    sink(bench)
    publisher.send(publish(b"t/1", b"behind", 1, 2))

    assert [each.message.payload for each in store.queues.appended] == [b"before"]
    assert [each.message.payload for each in appended(bench)] == [b"behind"]


def test_messages_of_a_batch_have_ids_that_rise() -> None:
    """They are allocated many at a time."""
    bench = Bench()
    bench.client("kept", queue_id=7).subscribe(b"t/1", 1)

    bench.client("p").send(b"".join(publish(b"t/1", b"x", 1, number) for number in range(1, 19)))

    ids = [each.message.message_id for each in appended(bench)]
    assert len(ids) == 18
    assert ids == sorted(set(ids))
