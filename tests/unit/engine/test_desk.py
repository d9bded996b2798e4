"""The desk: how much the control plane is handed in one turn, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from iothub.engine.desk import TURN_UNITS, Desk

CONNECT, SUBSCRIBE, DISCONNECT, AUTH = 0x10, 0x82, 0xE0, 0xF0


class Control:
    """Remembers what it was handed."""

    def __init__(self) -> None:
        self.handed: list[Any] = []

    def packet(self, connection: Any, _header: int, _body: bytes) -> None:
        self.handed.append(connection)


class Client:
    """A connection, as far as the desk looks at it."""

    def __init__(self, tenant: str | None) -> None:
        self.tenant = tenant
        self.is_closing = False


def client(tenant: str | None) -> Any:
    return Client(tenant)


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def desk(control: Control) -> Desk:
    return Desk(control)  # type: ignore[arg-type]


def turn(desk: Desk) -> None:
    desk.spent = 0
    while desk.serve():
        pass


def test_packets_are_handed_over_at_once_while_there_are_few(desk: Desk, control: Control) -> None:
    connection = client("acme")
    desk.hand(connection, SUBSCRIBE, b"", 1.0)

    assert control.handed == [connection]
    assert desk.is_empty


def test_turn_is_bounded_and_the_next_goes_on(desk: Desk, control: Control) -> None:
    """A flood is handed over piece by piece, in its order; nothing of it is lost."""
    flood = [client("acme") for _ in range(3 * TURN_UNITS)]
    for connection in flood:
        desk.hand(connection, SUBSCRIBE, b"", 1.0)
    assert control.handed == flood[:TURN_UNITS]

    turn(desk)
    assert control.handed == flood[: 2 * TURN_UNITS]
    turn(desk)
    assert control.handed == flood
    assert desk.is_empty


def test_tenants_take_turns(desk: Desk, control: Control) -> None:
    """However many of one tenant wait: another tenant's packet is second."""
    flood = [client("acme") for _ in range(2 * TURN_UNITS)]
    for connection in flood:
        desk.hand(connection, SUBSCRIBE, b"", 1.0)
    quiet = client("beta")
    desk.hand(quiet, SUBSCRIBE, b"", 1.0)
    control.handed.clear()

    turn(desk)

    assert control.handed.index(quiet) <= 1


def test_who_comes_later_does_not_overtake_its_own_tenant(desk: Desk, control: Control) -> None:
    """Also when the allowance has come back meanwhile."""
    flood = [client("acme") for _ in range(TURN_UNITS + 1)]
    for connection in flood:
        desk.hand(connection, SUBSCRIBE, b"", 1.0)
    late = client("acme")
    desk.hand(late, SUBSCRIBE, b"", 2.0)
    assert late not in control.handed

    turn(desk)
    assert control.handed[-2:] == [flood[-1], late]


def test_great_packet_counts_for_many(desk: Desk, control: Control) -> None:
    desk.hand(client("acme"), SUBSCRIBE, bytes(16 * TURN_UNITS), 1.0)
    second = client("beta")
    desk.hand(second, SUBSCRIBE, b"", 1.0)

    assert second not in control.handed


def exhaust(desk: Desk) -> None:
    desk.hand(client("acme"), SUBSCRIBE, bytes(16 * TURN_UNITS), 1.0)


def test_goodbye_never_waits(desk: Desk, control: Control) -> None:
    """Its connection may be gone in a moment, and then its Will would be sent."""
    exhaust(desk)
    connection = client("acme")
    desk.hand(connection, DISCONNECT, b"", 1.0)

    assert control.handed[-1] is connection


def test_who_has_gone_meanwhile_is_left_out(desk: Desk, control: Control) -> None:
    exhaust(desk)
    connection = client("acme")
    desk.hand(connection, SUBSCRIBE, b"", 1.0)
    connection.is_closing = True

    turn(desk)

    assert connection not in control.handed
    assert desk.is_empty


@pytest.mark.parametrize("later", [0.004, 0.006])
def test_allowance_comes_back_with_time(desk: Desk, control: Control, later: float) -> None:
    exhaust(desk)
    connection = client("beta")
    desk.hand(connection, SUBSCRIBE, b"", 1.0 + later)

    assert (connection in control.handed) is (later > 0.005)


def test_connects_that_have_waited_too_long_leave_the_line(desk: Desk, control: Control) -> None:
    """The others keep their places; an AUTH of somebody who is on the way in is no CONNECT."""
    exhaust(desk)
    late, early, asked = client(None), client(None), client(None)
    desk.hand(late, CONNECT, b"late", 1.0)
    desk.hand(asked, AUTH, b"", 1.0)
    desk.hand(early, CONNECT, b"early", 1.0)

    assert desk.give_up(lambda connection: connection is not early) == [(late, b"late")]
    assert desk.give_up(lambda _connection: False) == []
    turn(desk)

    assert control.handed[-2:] == [asked, early]
    assert desk.give_up(lambda _connection: True) == []


def test_line_of_nobody_but_the_late_is_empty(desk: Desk) -> None:
    exhaust(desk)
    desk.hand(client(None), CONNECT, b"", 1.0)

    assert len(desk.give_up(lambda _connection: True)) == 1
    assert desk.is_empty
