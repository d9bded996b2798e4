"""Who waits for the hub at the door, and for how long."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from iothub.engine import control_queue
from iothub.testing.clock import ManualClock
from iothub_tenants.control.connect_timeout import Doorstep
from tests.support.control_house import House, now


class Connection:
    """One that the message plane closes 10 s after it was accepted; time is counted from the first one's."""

    def __init__(self, accepted_s: float = 0.0) -> None:
        self.timer = SimpleNamespace(tick=round((accepted_s + 10.0) * 10))


def connection(accepted_s: float = 0.0) -> Any:
    return Connection(accepted_s)


def doorstep_of(clock: ManualClock, give_up_s: float = 30.0) -> Doorstep:
    wheel = SimpleNamespace(origin=clock.monotonic())
    plane: Any = SimpleNamespace(wheel=wheel, control_queue=SimpleNamespace(take_late_connects=lambda _late: []))
    return Doorstep(plane, clock, 10.0, give_up_s, lambda _connection, _body: None)


@pytest.mark.parametrize(("give_up_s", "patience_s"), [(30.0, 9.0), (3.0, 3.0)])
def test_doorstep_answers_before_the_client_is_closed_without_a_word(give_up_s: float, patience_s: float) -> None:
    """A little less than the connect timeout, or as long as a store is tried, if that is shorter; each one once."""
    clock, answered = ManualClock(), list[str]()
    doorstep = doorstep_of(clock, give_up_s)
    first, second, gone = connection(), connection(1.0), connection()
    for one, name in ((first, "first"), (gone, "gone")):
        doorstep.wait(one, partial(answered.append, name))
    doorstep.leave(gone)
    clock.advance(1.0)
    doorstep.wait(second, lambda: answered.append("second"))

    clock.advance(patience_s - 1.1)
    now(doorstep.look())
    assert answered == []
    clock.advance(0.2)
    now(doorstep.look())
    now(doorstep.look())

    assert answered == ["first"]
    assert len(doorstep) == 1


def test_time_is_counted_from_the_connections_beginning() -> None:
    """A client that was slow to send its CONNECT is closed no later than others."""
    clock, answered = ManualClock(), list[str]()
    doorstep = doorstep_of(clock)
    slow = connection()
    clock.advance(8.0)
    doorstep.wait(slow, lambda: answered.append("slow"))

    clock.advance(0.9)
    now(doorstep.look())
    assert answered == []
    clock.advance(0.2)
    now(doorstep.look())

    assert answered == ["slow"]


@pytest.mark.parametrize(("version", "code"), [(5, 0x89), (4, 3)])
def test_connect_that_nobody_has_looked_at_hears_that_the_hub_is_busy(
    house: House, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    """It stands in line until the message plane would close it without a word; a goodbye of its own is too late for it."""
    monkeypatch.setattr(control_queue, "TURN_UNITS", 0)
    guest = house.stranger(version)
    guest.send(guest.connect_bytes("c", "acme/dev1"))
    house.pass_time(8.8)
    now(house.control.doorstep.look())
    with pytest.raises(TimeoutError):
        guest.expect(2)

    house.pass_time(0.4)
    now(house.control.doorstep.look())
    house.settle()

    assert guest.expect(2).code == code
    assert guest.expect_closed() == []
    assert house.told.answers == ["overload"]
    assert house.plane.control_queue.is_empty


@pytest.mark.parametrize("connect", [b"\x10\x02\x00\x04", b"\x10\x07\x00\x04MQTT\x09"])
def test_connect_of_no_known_version_is_closed_without_an_answer(
    house: House, monkeypatch: pytest.MonkeyPatch, connect: bytes
) -> None:
    """Nobody knows which CONNACK it would understand."""
    monkeypatch.setattr(control_queue, "TURN_UNITS", 0)
    guest = house.stranger()
    guest.send(connect)
    house.pass_time(9.2)

    now(house.control.doorstep.look())
    house.settle()

    assert guest.expect_closed() == []


@pytest.mark.parametrize(("version", "code"), [(5, 0x89), (4, 3), (3, 3)])
def test_hub_short_of_memory_answers_a_connect_with_no(house: House, version: int, code: int) -> None:
    """At once, and without asking who it is; when the memory is there again, everybody may come."""
    house.hub.is_short_of_memory = True
    guest = house.stranger(version)
    guest.send(guest.connect_bytes("c", "acme/dev1"))
    house.settle()

    assert guest.expect(2).code == code
    assert guest.expect_closed() == []
    assert house.told.answers == ["overload"]

    house.hub.is_short_of_memory = False
    house.join("c", version)
