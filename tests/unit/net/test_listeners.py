"""All listeners together: started as one, ticked as one, reloaded as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.task import Clock as TwistedClock

from iothub.base.errors import ConfigError, UnavailableError
from iothub.net import listeners as module
from iothub.net.descriptors import UNLIMITED, Descriptors
from iothub.net.listener_info import ListenerInfo, listener_info
from iothub.net.listeners import Listeners
from iothub.testing.certificates import Authority
from iothub.testing.clock import ManualClock
from iothub.testing.echo_plane import EchoPlane


class FakeSocket:
    def __init__(self, info: ListenerInfo) -> None:
        self.info = info
        self.is_closed = False

    def getsockname(self) -> tuple[str, int]:
        return (self.info.bind, self.info.port or 40_000)

    def close(self) -> None:
        self.is_closed = True


class FakeTransports:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.listening: list[FakeSocket] = []

    def listen(self, listening, _acceptor) -> None:
        self.listening.append(listening)

    def stop_accepting(self, acceptor) -> None:
        self.calls.append(f"stop_accepting {acceptor.listener.name}")

    def __getattr__(self, name: str):
        return lambda: self.calls.append(name)


@pytest.fixture
def opened(monkeypatch) -> list[FakeSocket]:
    """What `open_listening` made; a listener on port 1 cannot be opened."""
    sockets: list[FakeSocket] = []

    def open_listening(info: ListenerInfo) -> FakeSocket:
        if info.port == 1:
            raise UnavailableError("the port is in use")
        sockets.append(FakeSocket(info))
        return sockets[-1]

    monkeypatch.setattr(module, "open_listening", open_listening)
    return sockets


def made(*infos: ListenerInfo) -> tuple[Listeners, FakeTransports, TwistedClock]:
    transports, reactor = FakeTransports(), TwistedClock()
    return (
        Listeners(infos, EchoPlane(), ManualClock(), transports, reactor, Descriptors(UNLIMITED), lambda *_: None),
        transports,
        reactor,
    )


def test_listeners_tell_where_they_are_and_tick_ten_times_a_second(opened) -> None:
    """Port 0 becomes the real one; close ends the heartbeat."""
    listeners, transports, reactor = made(listener_info("tcp"), listener_info("ws", bind="::1", port=8083))
    listeners.start()
    assert listeners.addresses() == {"tcp": ("127.0.0.1", 40_000), "ws": ("::1", 8083)}
    assert transports.listening == opened
    reactor.pump([0.1] * 5)
    assert transports.calls == ["tick"] * 6
    listeners.stop_accepting()
    listeners.close()
    assert transports.calls[6:] == ["stop_accepting tcp", "stop_accepting ws", "close"]
    assert reactor.getDelayedCalls() == []


def test_listeners_open_again_where_they_were(opened) -> None:
    """Clients know the port, also one that the system has chosen; the ticks go on meanwhile, for who stays."""
    listeners, transports, reactor = made(listener_info("tcp"))
    listeners.start()
    listeners.stop_accepting()
    reactor.pump([0.1] * 2)

    listeners.start()

    assert [listening.info.port for listening in opened] == [0, 40_000]
    assert transports.listening == opened
    assert transports.calls == ["tick", "stop_accepting tcp", "tick", "tick"]


def test_listeners_count_who_has_a_socket() -> None:
    listeners, _, _ = made(listener_info("tcp"), listener_info("ws"))
    for gate in listeners.gates().values():
        gate.enter("127.0.0.1", has_handshake=False)

    assert listeners.connections == 2


def test_listeners_start_all_or_none(opened) -> None:
    """A port in use leaves nothing open."""
    listeners, transports, _ = made(listener_info("tcp"), listener_info("ws", port=1))
    with pytest.raises(UnavailableError):
        listeners.start()
    assert [listening.is_closed for listening in opened] == [True]
    assert transports.listening == []


def test_listeners_take_new_settings_all_or_none(tmp_path: Path) -> None:
    """One bad certificate keeps every listener on its old one."""
    pairs = {name: Authority(tmp_path, name + "-ca").issue(name) for name in ("tls", "wss")}
    infos = [listener_info(name, cert_file=pair.cert_file, key_file=pair.key_file) for name, pair in pairs.items()]
    listeners, _, _ = made(*infos)
    before = [acceptor.filters._files for acceptor in listeners._acceptors]
    good = Path(pairs["wss"].cert_file).read_bytes()
    Path(pairs["wss"].cert_file).write_text("broken")
    with pytest.raises(ConfigError):
        listeners.prepare(infos)
    Path(pairs["wss"].cert_file).write_bytes(good)
    use = listeners.prepare(infos)
    assert [acceptor.filters._files for acceptor in listeners._acceptors] == before

    use()

    assert all(acceptor.filters._files is not old for acceptor, old in zip(listeners._acceptors, before, strict=True))
    assert listeners.with_certificates() == ["tls", "wss"]


def test_listeners_with_a_bad_certificate_are_not_made() -> None:
    """The configuration is wrong before any port is opened."""
    with pytest.raises(ConfigError, match=r"listeners.tls.cert_file"):
        made(listener_info("tls"))


def test_ports_are_tried_and_nothing_is_opened(monkeypatch) -> None:
    """Before a hub waits for servers: a port in use is told at once."""
    tried: list[str] = []
    monkeypatch.setattr(module, "try_port", lambda info: tried.append(info.name))
    listeners, transports, _ = made(listener_info("tcp"), ListenerInfo(name="other", port=2))
    listeners.try_ports()

    assert tried == ["tcp", "other"]
    assert (transports.listening, listeners.addresses()) == ([], {})
