"""The gate before routing, by itself."""

from __future__ import annotations

import pytest

from iothub.engine.limits import PlaneLimits
from iothub.engine.quota import PASSED, RATE, SPENT, Gate
from iothub.engine.state import Connection
from iothub.testing.engine import Bench, packets, publish


class Script:
    """A meter with given answers, which counts what it granted."""

    def __init__(self, *answers: float) -> None:
        self.answers = list(answers)
        self.granted = 0

    def take(self, units: int, now: float) -> float:
        answer = self.answers.pop(0) if self.answers else 0.0
        self.granted += units if answer == 0.0 else 0
        return answer


def admit(bench: Bench, connection: Connection) -> float:
    assert connection.session is not None
    return Gate(bench.plane.turn).admit(connection, connection.session, bench.tenant, 100)


def test_gate_lets_everything_pass_without_meters() -> None:
    bench = Bench()

    assert admit(bench, bench.client("c").connection) == PASSED


def test_gate_remembers_what_was_granted_while_it_waits() -> None:
    """A message is charged once, however often it is tried; afterwards the next one begins anew."""
    bench = Bench()
    connection = bench.client("c").connection
    messages = bench.tenant.inbound_messages = Script()
    bench.tenant.inbound_bytes = Script(0.5, 0.2)

    assert [admit(bench, connection) for _ in range(3)] == [0.5, 0.2, PASSED]
    assert messages.granted == 1
    Gate(bench.plane.turn).forget(connection)
    assert admit(bench, connection) == PASSED
    assert messages.granted == 2


def test_gate_distinguishes_a_rate_from_an_allowance() -> None:
    """Waiting longer than a publisher may be left unread is RATE; a day's allowance never comes back in time."""
    bench = Bench()
    connection = bench.client("c").connection
    bench.tenant.inbound_messages = Script(11.0)
    assert admit(bench, connection) == RATE
    bench.tenant.day_messages = Script(-1.0)

    assert admit(bench, connection) == SPENT
    assert bench.observer.drops == []


def test_gate_holds_publishers_ahead_of_the_store_back() -> None:
    """By connection and by worker; only what needs the store."""
    bench = Bench(PlaneLimits(unstored_per_connection=4, unstored_messages=100))
    connection = bench.client("c").connection
    gate = Gate(bench.plane.turn)
    connection.unstored = 4

    assert gate.must_wait_for_store(connection, True)
    assert not gate.must_wait_for_store(connection, False)
    assert not gate.may_go_on(connection)
    connection.unstored = 2
    assert gate.may_go_on(connection)
    bench.plane.turn.unstored_messages = 100

    assert gate.must_wait_for_store(connection, True)
    assert not gate.may_go_on(connection)


@pytest.mark.parametrize("is_tenant", [False, True], ids=["all", "tenant"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publisher_waits_while_routes_may_be_missing(qos: int, is_tenant: bool) -> None:
    """Another hub may have acknowledged a SUBACK that is not known here: nothing is routed until it is, then all is, in its order."""
    bench = Bench()
    receiver, sender = bench.client("r"), bench.client("s")
    if is_tenant:
        bench.plane.hold_publishers_of(bench.tenant, True)
    else:
        bench.plane.hold_from(bench.clock.monotonic())
    for number in (1, 2):
        sender.send(publish(b"t", b"%d" % number, qos, number))
    bench.pass_time(0.1)
    assert sender.transport.is_paused
    assert packets(sender.take()) == []

    receiver.subscribe(b"t", 0)
    if is_tenant:
        bench.plane.hold_publishers_of(bench.tenant, False)
    else:
        bench.plane.hold_from(bench.clock.monotonic() + 10)
    bench.pass_time(0.1)

    assert [body[-1:] for header, body in packets(receiver.take()) if header >> 4 == 3] == [b"1", b"2"]
    assert len(packets(sender.take())) == (2 if qos else 0)
    assert not sender.transport.is_paused
