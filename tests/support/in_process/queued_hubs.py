"""Hubs that store for each other's persistent sessions, over one store and links that deliver what the test lets them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from iothub.engine.state import Place
from iothub.peers.ports import PeerId
from iothub.peers.queued import QUEUED_TYPES, QueuedPeers
from iothub.testing.engine import Client, ManualStore
from iothub_services.sessions.port import HERE
from tests.support.in_process.routed_hubs import Net, RoutedHub


class QueuedHub(RoutedHub):
    """A hub with persistent sessions. Its store has the rows of the hub that was made first. `looks`: how often tails were asked for."""

    def __init__(self, net: Net[Any], peer: PeerId) -> None:
        super().__init__(net, peer)
        self.queued = QueuedPeers(self.routes, self.plane, net.call_soon)
        self.looks = 0
        self.queued.watch(self._note_look)
        self.links.register(QUEUED_TYPES, self.queued)
        others: list[QueuedHub] = list(net.hubs.values())
        self.store: ManualStore = self.bench.store
        if others:
            self.store.rows = others[0].store.rows

    def _note_look(self) -> None:
        self.looks += 1

    def keep(self, name: str, topic_filter: bytes, qos: int = 1, queue_id: int = 7, **options: Any) -> Client:
        """Connect a persistent session that has caught up."""
        client = self.client(name, queue_id=queue_id, **options)
        client.session.control = SimpleNamespace(place=Place(HERE, 1), is_online_elsewhere=False)
        client.subscribe(topic_filter, qos)
        self.bench.settle()
        return client

    def know(self, name: str, topic_filter: bytes, holder: PeerId, qos: int = 1, queue_id: int = 7) -> Any:
        """Know a session whose client another hub has, as the log says it; return it."""
        session = self.plane.create_session(self.tenant, name, name, is_persistent=True, queue_id=queue_id)
        place = Place(holder.node, 1, is_online=True)
        session.control = SimpleNamespace(place=place, is_online_elsewhere=True)
        Client(self.bench, session, None, None).subscribe(topic_filter, qos)  # type: ignore[arg-type]
        return session


def queued_pair() -> tuple[Net[QueuedHub], QueuedHub, QueuedHub]:
    """Two hubs with the tenant open at both."""
    net = Net(2, QueuedHub)
    one, two = net.hubs.values()
    for hub in (one, two):
        hub.open()
    net.settle()
    return net, one, two
