"""Listeners and dials of links on real sockets, in either twin; what travels is plain bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from iothub.base.clock import SystemClock
from iothub.net.backend import Backend, is_compiled_built
from iothub.net.ports import Transports
from iothub.net.transports import make_transports
from iothub.peers import certificates
from iothub.peers.certificates import Credentials, Pem
from iothub.peers.dialing import Dialler
from iothub.peers.link_files import LinkFiles
from iothub.peers.listening import LinkAcceptor, open_listening
from iothub.peers.ports import PeerAddress, Wire
from iothub.testing.echo_plane import EchoPlane
from iothub.testing.reactor_thread import ReactorThread

collect_ignore = [] if is_compiled_built() else ["test_forgotten_wires.py"]  # of the compiled twin
TWINS: tuple[Backend, ...] = ("plain", "compiled") if is_compiled_built() else ("plain",)


@dataclass
class Owner:
    """Gathers what a wire reports."""

    wire: Wire
    data: bytearray = field(default_factory=bytearray)
    reasons: list[str] = field(default_factory=list)
    on_data: Callable[[Owner], None] = lambda _owner: None

    def received(self, data: bytes) -> None:
        self.data += data
        self.on_data(self)

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)


class Peer:
    """One hub's side: what it has accepted and dialled, what it has refused."""

    def __init__(self, twin: Backend, thread: ReactorThread, credentials: Credentials | None) -> None:
        self.thread = thread
        self.plane = EchoPlane()
        self.transports: Transports = make_transports(twin, self.plane, SystemClock(), thread.reactor)
        server = None if credentials is None else credentials.server
        self.accepted: list[Owner] = []
        self.dialled: list[Owner] = []
        self.failures: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.acceptor = LinkAcceptor(server, thread.reactor, self._accept, self._refuse)
        client = None if credentials is None else credentials.client
        self.troubles: list[str] = []
        self.dialler = Dialler(
            self.transports, thread.reactor, self._run, client, lambda _peer, text: self.troubles.append(text)
        )

    def listen(self, address: str = "127.0.0.1:0") -> str:
        """Open, and return where."""
        listening = open_listening(address)
        name = listening.getsockname()
        self.thread.call(lambda: self.transports.listen(listening, self.acceptor))
        return address if isinstance(name, str) else address.replace(":0", f":{name[1]}")

    def dial(self, address: str, node: int = 2) -> None:
        peer = PeerAddress(node, 1, f"node-{node}", address)
        self.thread.call(lambda: self.dialler.dial(peer, self._dial, self.failures.append))

    def until(self, is_true: Callable[[], object]) -> None:
        def ask() -> bool:
            self.transports.tick()
            return bool(is_true())

        self.thread.until(ask)

    def close(self) -> None:
        def end() -> None:
            self.dialler.close()
            self.acceptor.close()
            self.transports.stop_accepting(self.acceptor)
            self.transports.close()

        self.thread.call(end)

    def _accept(self, wire: Wire) -> Owner:
        self.accepted.append(Owner(wire))
        return self.accepted[-1]

    def _dial(self, wire: Wire) -> Owner:
        wire.write(b"hello")
        self.dialled.append(Owner(wire))
        return self.dialled[-1]

    def _refuse(self, address: str, refusal: str, detail: str) -> None:
        self.refused.append((refusal, detail))

    async def _run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)


@dataclass
class Authority:
    """An installation's authority in a directory."""

    directory: Path
    pem: Pem = field(default_factory=certificates.make_authority)

    def files(self, node: int, certified: int | None = None, pem: Pem | None = None) -> LinkFiles:
        """Write the files of a node. `certified`: whose certificate it shows; `pem`: which."""
        directory = self.directory / str(node)
        directory.mkdir(exist_ok=True)
        issued = pem or certificates.issue(self.pem, node if certified is None else certified, [], 30)
        files = LinkFiles(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
        files.ca.write_bytes(self.pem.certificate)
        files.certificate.write_bytes(issued.certificate)
        files.key.write_bytes(issued.key)
        return files

    def credentials(self, node: int, certified: int | None = None) -> Credentials:
        return certificates.load(self.files(node, certified), node if certified is None else certified)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Backend:
    name: Backend = request.param
    return name


@pytest.fixture
def peer(twin: Backend) -> Iterator[Callable[..., Peer]]:
    """Make peers on one reactor; all are closed at the end."""
    with ReactorThread() as thread, contextlib.ExitStack() as peers:

        def make(credentials: Credentials | None = None) -> Peer:
            made = Peer(twin, thread, credentials)
            peers.callback(made.close)
            return made

        yield make
