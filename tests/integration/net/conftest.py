"""A running hub without MQTT: real sockets, either twin, an echoing plane."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

from iothub.base.clock import SystemClock
from iothub.net.backend import Backend, is_compiled_built
from iothub.net.descriptors import UNLIMITED, Descriptors
from iothub.net.listener_info import ListenerInfo, listener_info
from iothub.net.listeners import Listeners
from iothub.net.transports import make_transports
from iothub.testing.byte_clients import ByteClient, connect
from iothub.testing.certificates import Authority, Pair
from iothub.testing.echo_plane import EchoConnection, EchoPlane
from iothub.testing.reactor_thread import ReactorThread
from tests.support.waiting import PATIENCE_S

collect_ignore = (
    [] if is_compiled_built() else ["test_forgotten_sockets.py", "test_poller_slices.py"]
)  # of the compiled twin
TWINS: tuple[Backend, ...] = ("plain", "compiled") if is_compiled_built() else ("plain",)


class Hub:
    """What a test sees: the plane, the listeners, and clients of them."""

    def __init__(self, twin: Backend, thread: ReactorThread, infos: list[ListenerInfo]) -> None:
        self.thread = thread
        self.plane = EchoPlane()
        clock = SystemClock()
        transports = make_transports(twin, self.plane, clock, thread.reactor)
        self.listeners = Listeners(
            infos, self.plane, clock, transports, thread.reactor, Descriptors(UNLIMITED), lambda *_: None
        )
        self.tls: ssl.SSLContext | None = None
        self._clients: list[socket.socket] = []
        thread.call(self.listeners.start)

    def connect(self, name: str = "tcp") -> socket.socket:
        """A bare socket, whatever the listener expects."""
        client = socket.create_connection(self.listeners.addresses()[name], timeout=PATIENCE_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.append(client)
        return client

    def client(self, name: str, **options: object) -> ByteClient:
        """A client that speaks what the listener expects."""
        client = connect(name, self.listeners.addresses()[name], self.tls, **options)
        self._clients.append(client.sock)
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

    def ticks(self, count: int) -> None:
        """Let the hub's heartbeat pass a few times."""
        before = self.plane.ticks
        self.until(lambda: self.plane.ticks >= before + count)

    def close(self) -> None:
        self.thread.call(self.listeners.close)
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.close()


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Backend:
    name: Backend = request.param
    return name


@pytest.fixture(params=["tcp", "tls", "ws", "wss"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


@pytest.fixture
def start(twin: Backend) -> Iterator[Callable[..., Hub]]:
    """Start hubs of one twin; all are closed at the end."""
    with ReactorThread() as thread, contextlib.ExitStack() as hubs:

        def start_hub(*infos: ListenerInfo) -> Hub:
            hub = Hub(twin, thread, list(infos))
            hubs.callback(hub.close)
            return hub

        yield start_hub


@pytest.fixture
def start_one(start: Callable[..., Hub], transport: str, authority: Authority, pair: Pair) -> Callable[..., Hub]:
    """Start a hub with one listener of the transport under test; keyword arguments are its options."""

    def start_hub(**options: object) -> Hub:
        if transport in {"tls", "wss"}:
            options = {"cert_file": pair.cert_file, "key_file": pair.key_file} | options
        hub = start(listener_info(transport, **options))
        hub.tls = ssl.create_default_context(cafile=authority.ca_file)
        return hub

    return start_hub
