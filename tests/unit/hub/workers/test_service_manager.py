"""`iothub.hub.workers.service_manager`: what systemd reads from its socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from twisted.internet.task import Clock

from iothub.hub.workers.service_manager import ServiceManager


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.bind(str(tmp_path / "notify"))
        yield listening


def environment(listening: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": listening.getsockname(), **more}


def received(listening: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(listening.recv(4096).decode())
        except BlockingIOError:
            return found


def test_each_message_is_one_datagram(systemd: socket.socket) -> None:
    manager = ServiceManager(environment(systemd))
    manager.ready("ready: 127.0.0.1:1883")
    before = time.monotonic_ns() // 1000
    manager.reloading()
    manager.stopping()

    ready, reloading, stopping = received(systemd)
    assert ready == "READY=1\nSTATUS=ready: 127.0.0.1:1883"
    assert stopping == "STOPPING=1\nSTATUS=stopping"
    first, stamp, _ = reloading.splitlines()
    assert first == "RELOADING=1"
    assert before <= int(stamp.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_abstract_socket_is_reached() -> None:
    """In a container systemd gives such a name, with `@` in place of the zero byte."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.bind(f"\0iothub-test-{os.getpid()}")
        ServiceManager({"NOTIFY_SOCKET": f"@iothub-test-{os.getpid()}"}).stopping()

        assert received(listening) == ["STOPPING=1\nSTATUS=stopping"]


def test_watchdog_is_fed_in_time_and_only_while_the_reactor_turns(systemd: socket.socket) -> None:
    """Three times within its limit, for one may be late."""
    reactor = Clock()
    manager = ServiceManager(environment(systemd, WATCHDOG_USEC="60000000", WATCHDOG_PID=str(os.getpid())))
    manager.keep_alive(reactor.callLater)

    assert manager.watchdog_s == 60.0
    assert received(systemd) == ["WATCHDOG=1"]
    reactor.advance(19.9)
    assert received(systemd) == []
    reactor.pump([0.2, 20.0, 20.0])
    assert received(systemd) == ["WATCHDOG=1"] * 3


@pytest.mark.parametrize("limits", [{}, {"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}])
def test_without_a_watchdog_of_its_own_nothing_is_fed(systemd: socket.socket, limits: dict[str, str]) -> None:
    """The limit may be another process's: of a shell that started this one."""
    reactor = Clock()
    ServiceManager(environment(systemd, **limits)).keep_alive(reactor.callLater)

    assert received(systemd) == []
    assert reactor.getDelayedCalls() == []


@pytest.mark.parametrize("given", [None, {}, {"NOTIFY_SOCKET": ""}])
def test_without_a_manager_nothing_is_said(given: dict[str, str] | None) -> None:
    with capture_logs() as lines:
        ServiceManager(given).ready("")

    assert lines == []


def test_manager_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    with capture_logs() as lines:
        ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "none")}).ready("")

    (line,) = lines
    assert (line["event"], line["message"]) == ("could not notify the service manager", "READY=1")
