"""Session directories of several hubs in one process, over real links on Unix sockets; their clients are sets of keys.

Knows no session: a client is closed at once, and nothing is written about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from iothub.base.clock import SystemClock
from iothub.config.sections import Cluster, Config, Node
from iothub.hub.cluster.peer_links import LinkParts, PeerLinks
from iothub.net.backend import Backend
from iothub.net.descriptors import UNLIMITED, Descriptors
from iothub.net.listeners import Listeners
from iothub.net.transports import make_transports
from iothub.peers.directory import DIRECTORY_TYPES, Directory
from iothub.peers.ports import PeerId
from iothub.peers.view import Key, View
from iothub.testing.engine import Bench
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.metrics.alarms import Alarms
from iothub_tenants.accounts.hubs import HubRow

INSTALLATION = "a" * 32


class SetOfClients:
    """Fulfils `Clients` of the directory: whoever is connected."""

    def __init__(self, connected: Iterable[Key] = ()) -> None:
        self.connected = set(connected)

    def is_connected(self, key: Key) -> bool:
        return key in self.connected

    def connected_at_ms(self, key: Key) -> int:
        return 0

    def connected_keys(self) -> Iterable[Key]:
        return (key for key in list(self.connected) if key in self.connected)

    def keys_in_use(self) -> Iterable[Key]:
        return ()

    def leave(self, key: Key, on_left: Callable[[bool], None]) -> None:
        self.connected.discard(key)
        on_left(False)

    def hurry(self, key: Key) -> None:
        """Nothing is waited for."""


class DirectoryHub(SetOfClients):
    """One hub. Fulfils `Receiver`, too; the directory is made when the hub has joined."""

    def __init__(self, twin: Backend, thread: ReactorThread, number: int, path: Path) -> None:
        super().__init__()
        self.id = PeerId(number, 1)
        self.thread = thread
        clock, plane = SystemClock(), cast("Any", Bench().plane)
        transports = make_transports(twin, plane, clock, thread.reactor)
        self.listeners = Listeners(
            [], plane, clock, transports, thread.reactor, Descriptors(UNLIMITED), lambda *_: None
        )
        self.links = PeerLinks(
            LinkParts(
                settings=Config(
                    node=Node(number=number, name=f"hub-{number}"),
                    cluster=Cluster(listen=f"unix:{path}/{number}.sock"),
                ),
                files=None,
                version="1.0",
                installation=lambda: INSTALLATION,
                listeners=lambda: self.listeners,
                reactor=thread.reactor,
                run=cast("Any", self._run),
                alarms=Alarms(clock),
            )
        )
        self.directory = Directory(self.id, self.links, self, clock, partial(thread.reactor.callLater, 0))
        self.links.register(DIRECTORY_TYPES, self.directory)

    def begin(self) -> HubRow:
        address = self.thread.call(self.links.open)
        self.thread.call(lambda: self.links.begin(1))
        return HubRow(self.id.node, 1, f"hub-{self.id.node}", 0, 1, address=address, version="1.0")

    def see(self, *members: PeerId) -> None:
        self.thread.call(lambda: self.directory.set_view(View(0, members)))

    def connect(self, key: Key, on_connected: Callable[[], None]) -> None:
        """Handle a CONNECT; on the reactor thread."""

        def held(_written_s: float | None) -> None:
            self.connected.add(key)
            self.directory.let_go(key)
            on_connected()

        self.directory.hold(key, held, takes=True)

    def close(self) -> None:
        self.thread.call(self.links.close)
        self.thread.call(self.listeners.close)

    async def _run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)


def linked_hubs(twin: Backend, thread: ReactorThread, count: int, path: Path) -> Sequence[DirectoryHub]:
    """Make hubs whose links are up, each of them alone by its view."""
    hubs = [DirectoryHub(twin, thread, number, path) for number in range(1, count + 1)]
    rows = [hub.begin() for hub in hubs]
    for hub in hubs:
        others = [row for row in rows if row.number != hub.id.node]
        thread.call(partial(hub.links.members, others, serves=True))
    for hub in hubs:
        thread.until(lambda hub=hub: len(hub.links.up()) == count - 1)  # type: ignore[misc]
    return hubs
