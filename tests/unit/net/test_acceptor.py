"""Who is accepted at a listener, and who is closed at once."""

from __future__ import annotations

from iothub.base.reasons import Reason
from iothub.net.acceptor import Acceptor
from iothub.net.filter_factory import FilterFactory
from iothub.net.gate import Gate
from iothub.net.listener_info import ListenerInfo, listener_info
from iothub.testing.clock import ManualClock
from iothub.testing.echo_plane import EchoPlane

UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class FakeChannel:
    """A channel that records how it ends."""

    def __init__(self) -> None:
        self.connection = None
        self.stream = None
        self.closes: list[bool] = []
        self.failures: list[Reason] = []

    def wake(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self, *, abort: bool = False, drains: bool = False) -> None:
        self.closes.append(abort)

    def fail(self, reason: Reason) -> None:
        self.failures.append(reason)


def acceptor_for(info: ListenerInfo) -> tuple[Acceptor, EchoPlane, ManualClock]:
    clock, plane = ManualClock(), EchoPlane()
    return Acceptor(plane, Gate(info, clock), clock, FilterFactory(info)), plane, clock


def test_acceptor_introduces_a_plain_client_at_once() -> None:
    """No filters, no stream."""
    acceptor, plane, _ = acceptor_for(listener_info("tcp"))
    channel = FakeChannel()
    assert acceptor.accepted(channel, "::ffff:10.0.0.1", 7)
    assert channel.stream is None
    assert plane.connections[0].peer == "10.0.0.1:7"
    acceptor.released(channel)
    assert acceptor.gate.connections == 0


def test_acceptor_introduces_a_filtered_client_when_it_is_through() -> None:
    """A pending handshake is counted as one until then."""
    acceptor, plane, _ = acceptor_for(listener_info("ws"))
    channel = FakeChannel()
    assert acceptor.accepted(channel, "10.0.0.1", 7)
    assert (plane.connections, acceptor.gate.handshakes) == ([], 1)
    channel.stream.received(UPGRADE)
    assert (len(plane.connections), acceptor.gate.handshakes) == (1, 0)
    acceptor.released(channel)
    assert acceptor.gate.connections == 0


def test_acceptor_forgets_a_client_that_the_plane_refuses_or_fails_on(caplog) -> None:
    """No count is left behind by a refusal or a defect."""
    acceptor, plane, _ = acceptor_for(listener_info("tcp"))
    plane.is_full = True
    assert not acceptor.accepted(FakeChannel(), "10.0.0.1", 7)
    del plane.is_full
    assert not acceptor.accepted(FakeChannel(), "10.0.0.1", 7)
    assert "AttributeError" in caplog.text
    assert acceptor.gate.connections == 0


def test_acceptor_time_out_covers_handshake_and_connect() -> None:
    """From accept: who is in a handshake is reset, who has not connected is closed by the plane, who is gone is forgotten."""
    acceptor, plane, clock = acceptor_for(listener_info("ws", connect_timeout_s=5.0))
    shaking, waiting, admitted = FakeChannel(), FakeChannel(), FakeChannel()
    for channel in (shaking, waiting, admitted):
        acceptor.accepted(channel, "10.0.0.1", 7)
    plane.has_sessions = False
    waiting.stream.received(UPGRADE)
    plane.has_sessions = True
    admitted.stream.received(UPGRADE)
    clock.advance(4.9)
    acceptor.tick()
    assert plane.closed == []
    clock.advance(0.2)
    acceptor.tick()
    assert shaking.closes == [True]
    assert plane.closed == [(waiting.connection, Reason.CONNECT_TIMEOUT)]
    assert admitted.closes == []
    acceptor.tick()
    assert len(plane.closed) == 1


def test_acceptor_takes_another_time_out_for_everybody_who_has_not_connected() -> None:
    """A reload: also for whom it had let in before."""
    acceptor, _, clock = acceptor_for(listener_info("ws", connect_timeout_s=60.0))
    before, after = FakeChannel(), FakeChannel()
    acceptor.accepted(before, "10.0.0.1", 7)
    clock.advance(4.0)
    acceptor.prepare(listener_info("ws", connect_timeout_s=5.0))()
    acceptor.accepted(after, "10.0.0.1", 8)

    for _ in range(2):
        clock.advance(1.5)
        acceptor.tick()

    assert (before.closes, after.closes) == ([True], [])


def test_acceptor_reports_who_is_not_let_in_and_why() -> None:
    """A refused connection must leave a trace: by the gate, the plane, a filter, or for want of a descriptor."""
    heard: list[tuple[str, str, Reason, str]] = []
    clock, plane = ManualClock(), EchoPlane()
    info = listener_info("ws", deny=("10.0.0.9",), max_connections=2)
    gate = Gate(info, clock)
    acceptor = Acceptor(plane, gate, clock, FilterFactory(info), lambda *words: heard.append(words))

    acceptor.accepted(FakeChannel(), "10.0.0.9", 1)
    broken, slow = FakeChannel(), FakeChannel()
    acceptor.accepted(broken, "10.0.0.1", 2)
    broken.stream.received(b"nonsense\r\n\r\n")
    acceptor.accepted(slow, "10.0.0.1", 3)
    acceptor.accepted(FakeChannel(), "10.0.0.1", 4)
    clock.advance(info.connect_timeout_s)
    acceptor.tick()
    acceptor.shed("10.0.0.1", 5)

    assert [(address, reason) for _, address, reason, _ in heard] == [
        ("10.0.0.9:1", Reason.ADDRESS_DENIED),
        ("10.0.0.1:2", Reason.PROTOCOL_ERROR),
        ("10.0.0.1:4", Reason.OVERLOAD),
        ("10.0.0.1:3", Reason.CONNECT_TIMEOUT),
        ("10.0.0.1:5", Reason.FILE_DESCRIPTORS),
    ]
    assert [rule for *_, rule in heard if "WebSocket" not in rule] == [
        "listener_address_denied",
        "max_connections",
        "handshake not finished in time",
        "file_descriptors",
    ]
    assert gate.refused[Reason.FILE_DESCRIPTORS] == 1
