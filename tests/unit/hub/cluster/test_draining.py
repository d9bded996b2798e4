"""How a hub is emptied: at a rate, in slices, each client told in its own version, no Will published."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.task import Clock as Reactor

from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.hub.cluster.draining import SCANNED, TICK_S, Destination, Draining
from iothub.hub.phase import Phase
from iothub.mqtt.constants import PacketType
from iothub_tenants.broker.client_contexts import ClientContext
from tests.support.clients.packets import Packet, parse
from tests.support.clients.property_names import SERVER_REFERENCE

ELSEWHERE = Destination(has_hubs=True)


class Hub:
    """A hub with one tenant. `closed`: reason and last packet of each connection."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.sessions: dict[str, Any] = {}
        self.closed: list[tuple[Any, Reason, bytes]] = []
        self.happened: list[str] = []
        self.slices: list[float] = []
        self.listening = True
        self.port_error: UnavailableError | None = None
        self.phase = Phase()
        self.phase.become_ready()
        broker = SimpleNamespace(plane=SimpleNamespace(sessions=SimpleNamespace(awake=self.sessions)))
        clock = SimpleNamespace(monotonic=self.reactor.seconds)
        self.draining = Draining(
            cast("Any", self),
            cast("Any", [broker]),
            cast("Any", self),
            self.phase,
            cast("Any", clock),
            self.later,
            self.happened.append,
        )

    def join(self, version: int = 5, *, will: Any = None, expiry_s: int = 0, maximum_packet_size: int = 0) -> Any:
        connection = SimpleNamespace(
            version=version,
            is_closing=False,
            maximum_packet_size=maximum_packet_size,
            control=ClientContext(),
        )
        control = SimpleNamespace(will=will, expiry_s=expiry_s)
        session = SimpleNamespace(connection=connection, control=control, is_persistent=expiry_s > 0)
        self.sessions[f"client-{len(self.sessions)}"] = session
        return connection

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.reactor.advance(TICK_S)

    def later(self, delay: float, call: Any) -> Any:
        self.slices.append(delay)
        return self.reactor.callLater(delay, call)

    # --- Plane and Listeners

    def close(self, connection: Any, reason: Reason, packet: bytes) -> None:
        connection.is_closing = True
        self.closed.append((connection, reason, packet))
        for session in self.sessions.values():
            if session.connection is connection:
                session.connection = None

    @property
    def connections(self) -> int:
        return sum(session.connection is not None for session in self.sessions.values())

    def stop_accepting(self) -> None:
        self.listening = False

    def start(self) -> None:
        if self.port_error is not None:
            raise self.port_error
        self.listening = True


def said(packet: bytes) -> Packet:
    return parse(packet[0], packet[2:], 5)


def test_clients_go_at_the_rate() -> None:
    hub = Hub()
    for _ in range(100):
        hub.join()

    hub.draining.begin(20, ELSEWHERE)
    assert not hub.listening
    hub.advance(1.0)
    assert 18 <= len(hub.closed) <= 22

    hub.advance(5.0)
    assert len(hub.closed) == hub.draining.closed == 100
    assert hub.draining.is_done
    assert hub.reactor.getDelayedCalls() == []


def test_hub_that_was_busy_does_not_catch_up() -> None:
    """What it has missed would go at once, and come at once to the other hubs."""
    hub = Hub()
    for _ in range(100):
        hub.join()
    hub.draining.begin(20, ELSEWHERE)
    hub.advance(0.5)
    before = len(hub.closed)

    hub.reactor.advance(3.0)

    assert len(hub.closed) - before <= 2


def test_clients_that_are_away_cost_a_slice_now_and_then() -> None:
    hub = Hub()
    for _ in range(SCANNED * 2):
        hub.join().is_closing = True
    for session in hub.sessions.values():
        session.connection = None
    last = hub.join()

    hub.draining.begin(1000, ELSEWHERE)
    hub.reactor.advance(0)

    assert [connection for connection, _, _ in hub.closed] == [last]
    assert hub.slices[:3] == [0, 0, 0]  # others had their turns in between


def test_client_that_was_on_its_way_in_goes_too() -> None:
    hub = Hub()
    hub.join()
    hub.draining.begin(100, ELSEWHERE)
    hub.reactor.advance(0)
    assert len(hub.closed) == 1
    late = hub.join()

    hub.advance(2.0)

    assert hub.closed[-1][0] is late
    assert hub.draining.is_done


def test_each_version_is_told_as_it_can_be() -> None:
    hub = Hub()
    hub.join(4)
    hub.join(5)

    hub.draining.begin(100, ELSEWHERE)
    hub.advance(1.0)

    assert [(reason, packet) for _, reason, packet in hub.closed] == [
        (Reason.DRAINED, b""),
        (Reason.DRAINED, b"\xe0\x01\x9c"),
    ]


def test_references_take_turns_and_fit_the_client() -> None:
    """All would follow the first one. Who takes small packets only is sent none."""
    hub = Hub()
    for maximum in (0, 0, 0, 10):
        hub.join(maximum_packet_size=maximum)

    hub.draining.begin(100, Destination(has_hubs=True, references=("one:1883", "[::2]:1883")))
    hub.advance(1.0)

    packets = [said(packet) for _, _, packet in hub.closed]
    assert {packet.code for packet in packets} == {0x9C}
    assert [packet.property(SERVER_REFERENCE) for packet in packets] == [
        "one:1883 [::2]:1883",
        "[::2]:1883 one:1883",
        "one:1883 [::2]:1883",
        None,
    ]


def test_client_of_the_only_hub_hears_that_it_shuts_down() -> None:
    """Use another server would be no use."""
    hub = Hub()
    hub.join()

    hub.draining.begin(100, Destination(references=("one:1883",)))
    hub.advance(1.0)

    assert hub.closed[0][2] == bytes((PacketType.DISCONNECT << 4, 1, 0x8B))


@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "is_kept"), [(0, 0, False), (60, 0, False), (0, 60, False), (60, 60, True)]
)
def test_only_a_will_that_waits_anyway_is_kept(delay_s: int, expiry_s: int, *, is_kept: bool) -> None:
    hub = Hub()
    connection = hub.join(will=SimpleNamespace(delay_s=delay_s), expiry_s=expiry_s)

    hub.draining.begin(100, ELSEWHERE)
    hub.advance(1.0)

    assert (connection.control.leaving is None) is is_kept


def test_resumed_hub_closes_nobody_any_more() -> None:
    hub = Hub()
    for _ in range(10):
        hub.join()
    hub.draining.begin(1, ELSEWHERE)
    hub.advance(0.5)
    before = len(hub.closed)

    assert hub.draining.resume()
    hub.advance(5.0)

    assert len(hub.closed) == before
    assert hub.listening
    assert not hub.phase.is_draining
    assert not hub.draining.resume()
    assert hub.happened == ["hub.draining", "hub.resumed"]


def test_hub_whose_port_was_taken_drains_on() -> None:
    hub = Hub()
    for _ in range(3):
        hub.join()
    hub.draining.begin(1, ELSEWHERE)
    hub.port_error = UnavailableError("the port is in use")

    with pytest.raises(UnavailableError):
        hub.draining.resume()
    hub.advance(5.0)

    assert hub.draining.is_done


def test_second_drain_changes_the_rate() -> None:
    hub = Hub()
    for _ in range(50):
        hub.join()
    hub.draining.begin(1, ELSEWHERE)
    hub.advance(1.0)

    hub.draining.begin(1000, ELSEWHERE)
    hub.advance(1.0)

    assert hub.draining.closed == 50
    assert hub.happened == ["hub.draining"]


def test_hub_that_starts_or_stops_is_not_drained() -> None:
    hub = Hub()
    hub.phase.end_ready()

    with pytest.raises(UnavailableError, match="starting or stopping"):
        hub.draining.require_ready()
