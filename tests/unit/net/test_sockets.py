"""Why a listener could not be opened, in one line; and what Twisted does not say of a socket."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import pytest

from iothub.base.errors import ConfigError, UnavailableError
from iothub.net import sockets as module
from iothub.net.listener_info import listener_info
from iothub.net.sockets import open_listening, try_port, unread_bytes
from iothub.peers.listening import open_listening as open_link_listening


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EADDRINUSE, "listener 'tcp' cannot use 10.0.0.1:1883: the port is in use; .*listeners.tcp.port"),
        (errno.EACCES, "no permission; ports below 1024"),
        (errno.EADDRNOTAVAIL, "does not have that address; set listeners.tcp.bind"),
        (errno.ENOBUFS, "cannot use 10.0.0.1:1883: .*buffer"),
    ],
)
def test_listening_that_fails_says_why(monkeypatch, number: int, words: str) -> None:
    """Exit code 7, the address, the setting."""

    class Refusing(socket.socket):
        def bind(self, _address: object) -> None:
            import os

            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module.socket, "socket", Refusing)
    with pytest.raises(UnavailableError, match=words) as refused:
        open_listening(listener_info("tcp", bind="10.0.0.1", port=1883))
    assert refused.value.exit_code == 7


def test_port_that_is_tried_is_not_opened(monkeypatch) -> None:
    """Whoever asks whether the hub is there by connecting must not hear yes for a moment."""

    class Deaf(socket.socket):
        def listen(self, _backlog: int = 0) -> None:
            pytest.fail("nobody may connect")

    with socket.create_server(("127.0.0.1", 0)) as taken, monkeypatch.context() as patched:
        patched.setattr(module.socket, "socket", Deaf)
        try_port(listener_info("tcp", port=0))
        with pytest.raises(UnavailableError, match="the port is in use"):
            try_port(listener_info("tcp", port=taken.getsockname()[1]))


def test_listening_that_fails_after_binding_closes_the_socket(monkeypatch) -> None:
    """Two on one port: the second may only notice when it listens."""
    made: list[socket.socket] = []

    class LateBound(socket.socket):
        def listen(self, _backlog: int = 0) -> None:
            made.append(self)
            raise OSError(errno.EADDRINUSE, "in use")

    monkeypatch.setattr(module.socket, "socket", LateBound)
    with pytest.raises(UnavailableError, match="the port is in use"):
        open_listening(listener_info("tcp", port=0))
    assert made[0].fileno() == -1


def test_listening_needs_an_address() -> None:
    """Names are not resolved: they may mean several addresses."""
    with pytest.raises(ConfigError, match=r"listeners.tcp.bind: 'localhost' is not an IP address"):
        open_listening(listener_info("tcp", bind="localhost"))


def test_unread_bytes_counts_and_survives_the_end() -> None:
    """0 for a socket that is gone."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"four")
    assert unread_bytes(ours) == 4
    ours.close()
    theirs.close()
    assert unread_bytes(ours) == 0


@pytest.mark.parametrize(
    "open_it",
    [
        lambda: open_listening(listener_info("tcp", bind="127.0.0.1", port=0)),
        lambda: open_link_listening("127.0.0.1:0"),
    ],
    ids=["clients", "links"],
)
def test_who_connects_before_anybody_accepts_waits_for_no_acknowledgement(open_it: Callable[[], socket.socket]) -> None:
    """TCP_NODELAY is inherited when the connection is made: else a small packet waits for the one before it, 20 to 40 ms."""
    with open_it() as listening, socket.create_connection(listening.getsockname()):
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
