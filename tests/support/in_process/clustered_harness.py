"""Whole control planes of several hubs in one process, with routes between them: clients as raw bytes, links that the test moves.

Knows no process and no store that hubs share: each hub has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from iothub.base.clock import SystemClock
from iothub.base.errors import UnavailableError
from iothub.hub.cluster.peer_wills import PeerWills
from iothub.hub.cluster.session_directory import PeerDirectory
from iothub.peers.directory import DIRECTORY_TYPES
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.routes import Routes
from iothub.peers.will_copies import WILL_TYPES
from iothub_services.auth.port import TenantRecord
from iothub_services.sessions.manager import SessionManager
from iothub_services.sessions.port import Cluster as SessionCluster
from iothub_tenants.broker.brokers import Brokers
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import CONNACK, PUBLISH, SUBACK, Packet
from tests.support.in_process.control_harness import EVERYTHING, Harness, device
from tests.support.in_process.routed_hubs import Net, TestedLinks


class Receivers:
    """All that a hub takes from its links, where its net expects its routes."""

    def __init__(self, routes: Routes, directory: PeerDirectory, wills: PeerWills) -> None:
        self._all = (routes, directory, wills)
        self._routes = routes
        self.change_options = routes.change_options
        self._by_type = dict.fromkeys(DIRECTORY_TYPES, directory) | dict.fromkeys(WILL_TYPES, wills)

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        self._by_type.get(frame_type, self._routes).frame(peer, frame_type, body)

    def peer_up(self, peer: PeerId) -> None:
        for each in self._all:
            each.peer_up(peer)

    def peer_gone(self, peer: PeerId) -> None:
        for each in self._all:
            each.peer_gone(peer)

    def acknowledged(self, peer: PeerId, applied: int, arrived: int) -> None:
        self._routes.acknowledged(peer, applied, arrived)

    def members(self, peers: Iterable[PeerId]) -> None:
        known = list(peers)
        for each in self._all:
            each.members(known)


class BootTime(SystemClock):
    """The machine's clock, as links and directory see it."""

    now = 1_000.0

    def boottime(self) -> float:
        return self.now


class ClusteredHub:
    """One hub. Its clients are those of a `Harness`; tenants `acme` and `beta` have a device `dev1`. `reactor`: of what has a time limit."""

    def __init__(
        self, net: Net[Any], peer: PeerId, path: Path, clock: BootTime, cluster: SessionCluster | None = None
    ) -> None:
        self.id = peer
        self.view_version = 0
        self.links = TestedLinks(net, peer)
        self.reactor = Clock()
        folder = path / f"hub-{peer.node}-{peer.incarnation}"
        folder.mkdir()
        routes: list[Routes] = []
        directories: list[PeerDirectory] = []

        def make_routes(plane: Any) -> Routes:
            routes.append(Routes(self.links, plane, net.call_soon))
            return routes[0]

        def make_directory(brokers: Brokers, sessions: Callable[[], SessionManager]) -> PeerDirectory:
            directories.append(
                PeerDirectory(
                    self.links, lambda: peer, lambda: self.view_version, brokers, sessions, self.reactor, clock
                )
            )
            return directories[0]

        wills: list[PeerWills] = []

        def make_will_keeper(brokers: Brokers) -> PeerWills:
            wills.append(PeerWills(self.links, lambda: peer, brokers, self._find_tenant, self.reactor.callLater, clock))
            return wills[0]

        self.harness = Harness(
            folder,
            cluster=cluster,
            make_routes=make_routes,
            make_directory=make_directory,
            make_will_keeper=make_will_keeper,
        )
        self.harness.accounts.add(TenantRecord(8, "beta", rules=(EVERYTHING,)), device("dev1"))
        self.plane = self.harness.plane
        [self.directory] = directories
        [self.wills] = wills
        self.routes: Any = Receivers(routes[0], self.directory, self.wills)

    async def _find_tenant(self, tenant_id: int) -> TenantRecord | None:
        if self.harness.accounts.is_down:
            raise UnavailableError("the accounts are down")
        tenants = self.harness.accounts.tenants.values()
        return next((each for each in tenants if each.id == tenant_id), None)


class Cluster:
    """Two hubs or more, and clients at any of them."""

    def __init__(self, path: Path, count: int = 2, session_cluster: SessionCluster | None = None) -> None:
        self.clock = BootTime()
        self.net: Net[ClusteredHub] = Net(
            count, lambda net, peer: ClusteredHub(net, peer, path, self.clock, session_cluster)
        )
        self.hubs = list(self.net.hubs.values())
        self.look()
        self.net.settle()

    def look(self) -> None:
        """Every hub reads the accounts: who there is."""
        ids = list(self.net.hubs)
        for hub in self.net.hubs.values():
            hub.routes.members(each for each in ids if each != hub.id)

    def settle(self) -> None:
        """Whatever is under way arrives, is stored, and is answered."""
        for _ in range(3):
            for hub in self.hubs:
                hub.harness.settle()
            self.net.settle()

    def join(self, hub: int, client_id: str, version: int = 5, **options: Any) -> Client:
        """Connect to a hub, counted from 0."""
        client = self.ask(hub, client_id, version, **options)
        client.connack = client.expect(CONNACK)
        assert client.connack.code == 0
        return client

    def ask(self, hub: int, client_id: str, version: int = 5, **options: Any) -> Client:
        """Send a CONNECT to a hub, and let everything settle."""
        harness = self.hubs[hub].harness
        client = harness.open_connection(version)
        client.client_id = client_id
        options.setdefault("keep_alive", 65_535)
        client.send(client.connect_bytes(client_id, options.pop("username", "acme/dev1"), **options))
        self.settle()
        return client

    def subscribe(self, client: Client, *filters: tuple[str, int], **options: Any) -> None:
        """Subscribe, and wait for the SUBACK."""
        client.send_subscribe(*filters, packet_id=options.pop("packet_id", 10), **options)
        self.settle()
        client.expect(SUBACK)

    def take(self, client: Client) -> list[Packet]:
        """The PUBLISH packets that have come."""
        self.settle()
        return [each for each in client.fence() if each.kind == PUBLISH]

    def payloads(self, client: Client) -> list[bytes]:
        return [packet.payload for packet in self.take(client)]

    def close(self) -> None:
        for hub in self.hubs:
            hub.harness.close()
