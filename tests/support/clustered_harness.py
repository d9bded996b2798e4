"""Whole control planes of several hubs in one process, with routes between them: clients as raw bytes, links that the test moves.

Knows no process and no store that hubs share: each hub has its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iothub.peers.ports import PeerId
from iothub.peers.routes import Routes
from iothub_services.auth.port import TenantRecord
from tests.support.control_harness import EVERYTHING, Harness, device
from tests.support.mqtt_clients import Client
from tests.support.packets import CONNACK, PUBLISH, SUBACK, Packet
from tests.support.routed_hubs import Net, TestedLinks


class ClusteredHub:
    """One hub. Its clients are those of a `Harness`; tenants `acme` and `beta` have a device `dev1`."""

    def __init__(self, net: Net[Any], peer: PeerId, path: Path) -> None:
        self.id = peer
        self.links = TestedLinks(net, peer)
        folder = path / f"hub-{peer.node}-{peer.incarnation}"
        folder.mkdir()
        made: list[Routes] = []

        def make_routes(plane: Any) -> Routes:
            made.append(Routes(self.links, plane, net.call_soon))
            return made[0]

        self.harness = Harness(folder, make_routes=make_routes)
        self.harness.accounts.add(TenantRecord(8, "beta", rules=(EVERYTHING,)), device("dev1"))
        self.plane = self.harness.plane
        [self.routes] = made


class Cluster:
    """Two hubs or more, and clients at any of them."""

    def __init__(self, path: Path, count: int = 2) -> None:
        self.net: Net[ClusteredHub] = Net(count, lambda net, peer: ClusteredHub(net, peer, path))
        self.hubs = list(self.net.hubs.values())

    def settle(self) -> None:
        """Whatever is under way arrives, is stored, and is answered."""
        for _ in range(3):
            for hub in self.hubs:
                hub.harness.settle()
            self.net.settle()

    def join(self, hub: int, client_id: str, version: int = 5, **options: Any) -> Client:
        """Connect to a hub, counted from 0."""
        harness = self.hubs[hub].harness
        client = harness.open_connection(version)
        client.client_id = client_id
        options.setdefault("keep_alive", 65_535)
        client.send(client.connect_bytes(client_id, options.pop("username", "acme/dev1"), **options))
        self.settle()
        client.connack = client.expect(CONNACK)
        assert client.connack.code == 0
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
