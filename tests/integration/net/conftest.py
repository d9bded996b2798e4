"""A running hub without MQTT: real sockets, either twin, an echoing plane."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from iothub.clock import SystemClock
from iothub.net.backend import Backend
from iothub.net.listener_info import ListenerInfo
from iothub.net.listeners import Listeners
from iothub.net.transports import make_transports
from iothub.testing.echo_plane import EchoConnection, EchoPlane
from iothub.testing.reactor_thread import ReactorThread

TWINS: tuple[Backend, ...] = ("plain", "compiled")


class Hub:
    """What a test sees: the plane, the listeners, and sockets to them."""

    def __init__(self, twin: Backend, thread: ReactorThread, infos: list[ListenerInfo]) -> None:
        self.thread = thread
        self.plane = EchoPlane()
        clock = SystemClock()
        transports = make_transports(twin, self.plane, clock, thread.reactor)
        self.listeners = Listeners(infos, self.plane, clock, transports, thread.reactor)
        self._clients: list[socket.socket] = []
        thread.call(self.listeners.start)

    def connect(self, name: str = "tcp") -> socket.socket:
        client = socket.create_connection(self.listeners.addresses()[name], timeout=10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.append(client)
        return client

    def is_refused(self, name: str = "tcp") -> bool:
        """A new client is closed or reset without a byte."""
        try:
            return self.connect(name).recv(1) == b""
        except ConnectionResetError:
            return True

    def only(self) -> EchoConnection:
        """The one connection of this test, once it is there."""
        self.until(lambda: len(self.plane.connections) == 1)
        return self.plane.connections[0]

    def until(self, is_true: Callable[[], bool]) -> None:
        self.thread.until(is_true)

    def close(self) -> None:
        self.thread.call(self.listeners.close)
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.close()


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Backend:
    name: Backend = request.param
    return name


@pytest.fixture
def start(twin: Backend) -> Iterator[Callable[..., Hub]]:
    """Start hubs of one twin; all are closed at the end, and nothing may be left of them."""
    with ReactorThread() as thread, contextlib.ExitStack() as hubs:

        def start_hub(*infos: ListenerInfo) -> Hub:
            hub = Hub(twin, thread, list(infos))
            hubs.callback(hub.close)
            return hub

        yield start_hub
