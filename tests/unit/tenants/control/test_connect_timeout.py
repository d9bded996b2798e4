"""A CONNECT that the hub cannot answer in time is rejected before the client gives up."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from iothub.engine import control_queue
from iothub.engine.limits import PlaneLimits
from iothub.testing.clock import ManualClock
from iothub_tenants.control.connect_timeout import ConnectTimeouts
from tests.support.in_process.control_harness import Harness, now


class Connection:
    """One that the message plane closes 10 s after it was accepted; time is counted from the first one's."""

    def __init__(self, accepted_s: float = 0.0) -> None:
        self.timer = SimpleNamespace(tick=round((accepted_s + 10.0) * 10))


def connection(accepted_s: float = 0.0) -> Any:
    return Connection(accepted_s)


def connect_timeouts_of(clock: ManualClock, give_up_s: float = 30.0) -> ConnectTimeouts:
    wheel = SimpleNamespace(origin=clock.monotonic())
    control_queue = SimpleNamespace(take_late_connects=lambda _late: [])
    plane: Any = SimpleNamespace(wheel=wheel, control_queue=control_queue, limits=PlaneLimits(connect_timeout_s=10.0))
    return ConnectTimeouts(plane, clock, give_up_s, lambda _connection, _body: None)


@pytest.mark.parametrize(("give_up_s", "patience_s"), [(30.0, 9.0), (3.0, 3.0)])
def test_waiting_connect_is_rejected_before_the_plane_closes_it_without_connack(
    give_up_s: float, patience_s: float
) -> None:
    """A little less than the connect timeout, or as long as a store is tried, if that is shorter; each one once."""
    clock, answered = ManualClock(), list[str]()
    connect_timeouts = connect_timeouts_of(clock, give_up_s)
    first, second, gone = connection(), connection(1.0), connection()
    for one, name in ((first, "first"), (gone, "gone")):
        connect_timeouts.watch(one, partial(answered.append, name))
    connect_timeouts.forget(gone)
    clock.advance(1.0)
    connect_timeouts.watch(second, lambda: answered.append("second"))

    clock.advance(patience_s - 1.1)
    now(connect_timeouts.reject_overdue())
    assert answered == []
    clock.advance(0.2)
    now(connect_timeouts.reject_overdue())
    now(connect_timeouts.reject_overdue())

    assert answered == ["first"]
    assert len(connect_timeouts) == 1


def test_time_is_counted_from_the_connections_beginning() -> None:
    """A client that was slow to send its CONNECT is closed no later than others."""
    clock, answered = ManualClock(), list[str]()
    connect_timeouts = connect_timeouts_of(clock)
    slow = connection()
    clock.advance(8.0)
    connect_timeouts.watch(slow, lambda: answered.append("slow"))

    clock.advance(0.9)
    now(connect_timeouts.reject_overdue())
    assert answered == []
    clock.advance(0.2)
    now(connect_timeouts.reject_overdue())

    assert answered == ["slow"]


@pytest.mark.parametrize(("version", "code"), [(5, 0x89), (4, 3)])
def test_connect_that_stays_in_the_control_queue_is_rejected_as_overload(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    """It stays in the control queue until shortly before the message plane would close it without a CONNACK."""
    monkeypatch.setattr(control_queue, "TURN_UNITS", 0)
    client = harness.open_connection(version)
    client.send(client.connect_bytes("c", "acme/dev1"))
    harness.pass_time(8.8)
    now(harness.control.connect_timeouts.reject_overdue())
    with pytest.raises(TimeoutError):
        client.expect(2)

    harness.pass_time(0.4)
    now(harness.control.connect_timeouts.reject_overdue())
    harness.settle()

    assert client.expect(2).code == code
    assert client.expect_closed() == []
    assert harness.recorder.answers == ["overload"]
    assert harness.plane.control_queue.is_empty


@pytest.mark.parametrize("connect", [b"\x10\x02\x00\x04", b"\x10\x07\x00\x04MQTT\x09"])
def test_connect_of_no_known_version_is_closed_without_an_answer(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, connect: bytes
) -> None:
    """Nobody knows which CONNACK it would understand."""
    monkeypatch.setattr(control_queue, "TURN_UNITS", 0)
    client = harness.open_connection()
    client.send(connect)
    harness.pass_time(9.2)

    now(harness.control.connect_timeouts.reject_overdue())
    harness.settle()

    assert client.expect_closed() == []


@pytest.mark.parametrize(("version", "code"), [(5, 0x89), (4, 3), (3, 3)])
def test_hub_short_of_memory_rejects_connect(harness: Harness, version: int, code: int) -> None:
    """At once and without authentication; when there is memory again, CONNECT succeeds."""
    is_short = True
    harness.hub.is_short_of_memory = lambda: is_short
    client = harness.open_connection(version)
    client.send(client.connect_bytes("c", "acme/dev1"))
    harness.settle()

    assert client.expect(2).code == code
    assert client.expect_closed() == []
    assert harness.recorder.answers == ["overload"]

    is_short = False
    harness.join("c", version)
