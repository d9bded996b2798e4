"""A hub that systemd starts: the test is systemd, and reads its messages in their order."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.hubs.hub import Hub


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(300)
        listening.bind(str(tmp_path / "notify"))
        yield listening


def next_of(listening: socket.socket, word: str) -> str:
    """Return the next message but for those that say that the hub is alive."""
    message = "WATCHDOG=1"
    while message == "WATCHDOG=1":
        message = listening.recv(4096).decode()
    assert message.startswith(f"{word}=1\n")
    return message


def test_hub_says_what_it_does(make_hub: Callable[..., Hub], systemd: socket.socket) -> None:
    """Ready when clients are served, alive all the time, a reload from its beginning to its end, and the stop."""
    hub = make_hub("tcp")
    hub.environment = {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "300000"}
    hub.start()
    assert hub.process is not None

    assert next_of(systemd, "READY") == f"READY=1\nSTATUS=ready: 127.0.0.1:{hub.ports['tcp']}"
    assert systemd.recv(4096) == b"WATCHDOG=1"
    hub.process.send_signal(signal.SIGHUP)
    assert "MONOTONIC_USEC=" in next_of(systemd, "RELOADING")
    next_of(systemd, "READY")
    assert hub.stop() == 0
    next_of(systemd, "STOPPING")
