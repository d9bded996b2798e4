"""The control queue: how much the control plane gets in one turn, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from iothub.engine.control_queue import TURN_UNITS, ControlQueue
from iothub_tenants.control.connect import CONNECT_LIMITS

CONNECT, SUBSCRIBE, DISCONNECT, AUTH = 0x10, 0x82, 0xE0, 0xF0


class Control:
    """Remembers what it got."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def packet(self, connection: Any, _header: int, _body: bytes) -> None:
        self.received.append(connection)


class Client:
    """A connection, as far as the queue looks at it."""

    def __init__(self, tenant: str | None) -> None:
        self.tenant = tenant
        self.is_closing = False


def client(tenant: str | None) -> Any:
    return Client(tenant)


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def queue(control: Control) -> ControlQueue:
    return ControlQueue(control)  # type: ignore[arg-type]


def turn(queue: ControlQueue) -> None:
    queue.spent = 0
    while queue.serve_next():
        pass


def test_packets_are_passed_on_at_once_while_there_are_few(queue: ControlQueue, control: Control) -> None:
    connection = client("acme")
    queue.put(connection, SUBSCRIBE, b"", 1.0)

    assert control.received == [connection]
    assert queue.is_empty


def test_turn_is_bounded_and_the_next_goes_on(queue: ControlQueue, control: Control) -> None:
    """A flood is passed on piece by piece, in its order; nothing of it is lost."""
    flood = [client("acme") for _ in range(3 * TURN_UNITS)]
    for connection in flood:
        queue.put(connection, SUBSCRIBE, b"", 1.0)
    assert control.received == flood[:TURN_UNITS]

    turn(queue)
    assert control.received == flood[: 2 * TURN_UNITS]
    turn(queue)
    assert control.received == flood
    assert queue.is_empty


def test_tenants_take_turns(queue: ControlQueue, control: Control) -> None:
    """However many of one tenant wait: another tenant's packet is second."""
    flood = [client("acme") for _ in range(2 * TURN_UNITS)]
    for connection in flood:
        queue.put(connection, SUBSCRIBE, b"", 1.0)
    quiet = client("beta")
    queue.put(quiet, SUBSCRIBE, b"", 1.0)
    control.received.clear()

    turn(queue)

    assert control.received.index(quiet) <= 1


def test_later_packet_does_not_overtake_its_own_tenant(queue: ControlQueue, control: Control) -> None:
    """Also when the allowance has come back meanwhile."""
    flood = [client("acme") for _ in range(TURN_UNITS + 1)]
    for connection in flood:
        queue.put(connection, SUBSCRIBE, b"", 1.0)
    late = client("acme")
    queue.put(late, SUBSCRIBE, b"", 2.0)
    assert late not in control.received

    turn(queue)
    assert control.received[-2:] == [flood[-1], late]


def test_large_packet_counts_for_many(queue: ControlQueue, control: Control) -> None:
    queue.put(client("acme"), SUBSCRIBE, bytes(16 * TURN_UNITS), 1.0)
    second = client("beta")
    queue.put(second, SUBSCRIBE, b"", 1.0)

    assert second not in control.received


def test_usual_connects_are_one_unit_each(queue: ControlQueue, control: Control) -> None:
    """Their names and secrets are no Topic Filters: a storm is not handled in four times as many turns."""
    storm = [client(None) for _ in range(TURN_UNITS + 1)]
    for connection in storm:
        queue.put(connection, CONNECT, bytes(255), 1.0)

    assert control.received == storm[:TURN_UNITS]


def test_connect_with_as_many_properties_as_it_may_have_counts_for_many(queue: ControlQueue, control: Control) -> None:
    """2,048 User Properties take 2 ms, before anybody is authenticated: clients at work come in between."""
    storm = [client(None) for _ in range(TURN_UNITS)]
    for connection in storm:
        queue.put(connection, CONNECT, bytes(7 * 2 * CONNECT_LIMITS.user_properties), 1.0)

    assert len(control.received) == 2


def exhaust(queue: ControlQueue) -> None:
    queue.put(client("acme"), SUBSCRIBE, bytes(16 * TURN_UNITS), 1.0)


def test_disconnect_never_waits(queue: ControlQueue, control: Control) -> None:
    """Its connection may be gone in a moment, and then its Will would be sent."""
    exhaust(queue)
    connection = client("acme")
    queue.put(connection, DISCONNECT, b"", 1.0)

    assert control.received[-1] is connection


def test_closed_connection_is_passed_over(queue: ControlQueue, control: Control) -> None:
    exhaust(queue)
    connection = client("acme")
    queue.put(connection, SUBSCRIBE, b"", 1.0)
    connection.is_closing = True

    turn(queue)

    assert connection not in control.received
    assert queue.is_empty


@pytest.mark.parametrize("later", [0.004, 0.006])
def test_allowance_comes_back_with_time(queue: ControlQueue, control: Control, later: float) -> None:
    exhaust(queue)
    connection = client("beta")
    queue.put(connection, SUBSCRIBE, b"", 1.0 + later)

    assert (connection in control.received) is (later > 0.005)


def test_connects_that_have_waited_too_long_leave_the_queue(queue: ControlQueue, control: Control) -> None:
    """The others keep their places; an AUTH of somebody who is on the way in is no CONNECT."""
    exhaust(queue)
    late, early, asked = client(None), client(None), client(None)
    queue.put(late, CONNECT, b"late", 1.0)
    queue.put(asked, AUTH, b"", 1.0)
    queue.put(early, CONNECT, b"early", 1.0)

    assert queue.take_late_connects(lambda connection: connection is not early) == [(late, b"late")]
    assert queue.take_late_connects(lambda _connection: False) == []
    turn(queue)

    assert control.received[-2:] == [asked, early]
    assert queue.take_late_connects(lambda _connection: True) == []


def test_queue_of_late_connects_alone_is_empty(queue: ControlQueue) -> None:
    exhaust(queue)
    queue.put(client(None), CONNECT, b"", 1.0)

    assert len(queue.take_late_connects(lambda _connection: True)) == 1
    assert queue.is_empty
