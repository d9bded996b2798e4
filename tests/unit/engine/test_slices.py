"""Messages with very many receivers: delivered over several turns, in order, within bounds."""

from __future__ import annotations

from collections.abc import Callable

from iothub.base.reasons import Drop
from iothub.engine.limits import PlaneLimits, TenantLimits
from iothub.engine.state import TenantPlane
from iothub.testing.engine import Bench, Client, ack, packets, publish


def crowd(bench: Bench, count: int, topic: bytes = b"a", qos: int = 0) -> list[Client]:
    clients = [bench.client(f"{topic.decode()}{number}") for number in range(count)]
    for client in clients:
        client.subscribe(topic, qos)
    return clients


def payloads(client: Client) -> list[bytes]:
    return [body[3 + 2 * (header >> 1 & 3 > 0) :] for header, body in packets(client.take())]


def is_served(clients: list[Client]) -> list[bool]:
    return [bool(client.take()) for client in clients]


def test_many_receivers_are_served_over_several_turns() -> None:
    """So many in one turn, the next ones in the next; small fan-outs at once."""
    bench = Bench(PlaneLimits(fanout_slice=3))
    clients = crowd(bench, 8)
    few = crowd(bench, 3, b"b")
    publisher = bench.client("p")

    publisher.send(publish(b"b", b"x"))
    assert is_served(few) == [True] * 3
    publisher.send(publish(b"a", b"x"))
    served = [sum(is_served(clients))]
    for _ in range(3):
        bench.plane.end_batch()
        served.append(sum(is_served(clients)))

    assert served == [3, 3, 2, 0]
    assert (bench.tenant.slices, bench.tenant.sliced, bench.tenant.buffered_bytes) == (None, 0, 0)


def test_nothing_overtakes_a_message_in_slices() -> None:
    """First in, first out for the whole tenant [MQTT-4.6.0-6]; the publisher is answered at once."""
    bench = Bench(PlaneLimits(fanout_slice=3))
    clients = crowd(bench, 8, qos=1)
    clients[7].subscribe(b"b", 1)
    publisher = bench.client("p")

    answers = publisher.send(publish(b"a", b"1", 1, 1) + publish(b"b", b"2", 1, 2) + publish(b"a", b"3", 1, 3))
    bench.pass_time(1)

    assert answers == ack(0x40, 1) + ack(0x40, 2) + ack(0x40, 3)
    assert [payloads(client) for client in clients] == [[b"1", b"3"]] * 7 + [[b"1", b"2", b"3"]]


def test_messages_for_the_same_receivers_travel_together() -> None:
    """Each receiver is written once for all that came before the first one was served, and not more than a slice goes out in a turn."""
    bench = Bench(PlaneLimits(fanout_slice=6))
    clients = crowd(bench, 8)
    publisher = bench.client("p")
    wakes = [client.transport.wakes for client in clients]

    publisher.send(b"".join(publish(b"a", b"%d" % number) for number in range(3)))
    served = [sum(client.transport.wakes for client in clients) - sum(wakes)]
    for _ in range(4):
        bench.plane.end_batch()
        served.append(sum(client.transport.wakes for client in clients) - sum(wakes))

    assert served == [2, 4, 6, 8, 8]
    assert [payloads(client) for client in clients] == [[b"0", b"1", b"2"]] * 8
    assert (bench.tenant.sliced, bench.tenant.buffered_bytes) == (0, 0)


def test_a_turn_has_a_budget_for_many_receivers() -> None:
    """A chunk full of fan-outs, each of them small enough, is no longer turn than one big one; few receivers cost no budget."""
    bench = Bench(PlaneLimits(fanout_slice=20, turn_deliveries=50))
    clients = crowd(bench, 20)
    [alone] = crowd(bench, 1, b"b")
    publisher = bench.client("p")

    publisher.send(b"".join(publish(b"a", b"%d" % number) for number in range(5)))
    assert [len(payloads(client)) for client in clients] == [5] * 7 + [2] * 13
    bench.pass_time(1)
    publisher.send(publish(b"b", b"x") * 100)

    assert [len(payloads(client)) for client in clients] == [0] * 7 + [3] * 13
    assert len(payloads(alone)) == 100


def test_receivers_are_those_of_the_moment_of_routing() -> None:
    """Who comes later gets nothing of it, who has gone is counted, who unsubscribed may still get it, No Local holds."""
    bench = Bench(PlaneLimits(fanout_slice=1))
    first, second, gone, leaving = crowd(bench, 4)
    first.subscribe(b"a", 0, no_local=True)

    first.send(publish(b"a", b"x"))
    bench.plane.unsubscribe(leaving.session, None, b"a")
    gone.drop()
    bench.plane.discard(gone.session)
    late = bench.client("late")
    late.subscribe(b"a")
    bench.pass_time(1)

    assert [payloads(client) for client in (first, second, leaving, late)] == [[], [b"x"], [b"x"], []]
    assert bench.tenant.counters.dropped == {Drop.SESSION_ENDED: 1}


def test_persistent_receivers_are_queued_at_once() -> None:
    """What must be durable does not wait for its slice, and the limit of receivers counts both."""
    bench = Bench(PlaneLimits(fanout_slice=2))
    bench.tenant.limits = TenantLimits(fanout=5)
    bench.client("kept", queue_id=7).subscribe(b"a", 1)
    clients = crowd(bench, 5, qos=1)
    bench.settle()
    publisher = bench.client("p")

    publisher.send(publish(b"a", b"x", 1, 1))
    assert bench.store.appends == 1
    bench.settle()
    bench.pass_time(1)

    assert publisher.take() == ack(0x40, 1)
    assert sum(is_served(clients)) + bench.store.queue(7).tail == 5
    assert bench.tenant.counters.dropped == {Drop.FANOUT: 1}


def test_publishers_pause_while_too_much_is_in_slices() -> None:
    """Bounded: nothing more of this tenant is routed until receivers were served; then all goes on."""
    bench = Bench(PlaneLimits(fanout_slice=2, sliced_receivers=4))
    clients = crowd(bench, 6)
    publisher = bench.client("p")

    publisher.send(b"".join(publish(b"a", b"%d" % number) for number in range(5)))
    assert (bench.tenant.sliced <= 6, publisher.transport.is_paused) == (True, True)
    bench.pass_time(5)

    assert not publisher.transport.is_paused
    assert [payloads(client) for client in clients] == [[b"0", b"1", b"2", b"3", b"4"]] * 6
    assert bench.tenant.buffered_bytes == 0


def test_tenants_take_turns() -> None:
    """One slice in a turn, whoever it belongs to: a big fan-out of one tenant delays another one's by a slice."""
    bench = Bench(PlaneLimits(fanout_slice=2))
    acme, acmes = bench.tenant, crowd(bench, 6)
    acme_publisher = bench.client("p")
    bench.tenant = TenantPlane(2, "other")
    others = crowd(bench, 4)
    publisher = bench.client("p")

    acme_publisher.send(publish(b"a", b"x"))
    publisher.send(publish(b"a", b"x"))
    bench.plane.end_batch()

    assert (sum(is_served(acmes)), sum(is_served(others))) == (4, 2)
    bench.pass_time(1)
    assert (acme.slices, bench.tenant.slices) == (None, None)


def test_slices_ask_to_be_called_soon_once() -> None:
    """No tick is waited for, and no turn is asked for twice."""
    calls: list[Callable[[], None]] = []
    bench = Bench(PlaneLimits(fanout_slice=2))
    bench.plane.call_soon = calls.append
    clients = crowd(bench, 5)

    bench.client("p").send(publish(b"a", b"x"))
    bench.plane.end_batch()
    assert len(calls) == 1
    calls.pop()()

    assert is_served(clients) == [True] * 5
    assert calls == []
