"""Retained Messages of several hubs that share a store: each hub tells the others what it has written, and is asked for the rest before a replay.

Knows no store and no index: `TenantRetained` has them. Which hubs have a tenant open is known by `iothub.peers.routes`.

    a retained write is durable -> RETAINED to the hubs that have the tenant open -> PUBACK
    a replay begins -> SYNC to those hubs -> each answers SYNCED at once, and again when what it had routed by then is durable and announced

Invariant: every hub with the tenant open is asked before every replay, whether it knew the Topic Filter before or not. A message that it routed
before it was asked is durable and announced when it has answered, or came live; one that it routes later comes live. Nothing is missed, and the first
answer, which stands among the messages of the link, parts the ones from the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.retained_frames import Retained, Synced
from iothub.peers.route_frames import TenantQuestion
from iothub.peers.routed_peer import RoutedPeer
from iothub.peers.routes import Routes

RETAINED_TYPES = (FrameType.RETAINED, FrameType.SYNC, FrameType.SYNCED)

OnDone = Callable[[], None]
OnAsked = Callable[[PeerId], None]


class TenantRetained(Protocol):
    """One tenant's retained messages here."""

    def take_change(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """Another hub has written, and the write is durable; `size` 0: it has deleted the message."""

    def note_arrival(self, source: PeerId, topic: bytes) -> None:
        """A message with RETAIN 1 has come from a hub, and was delivered here."""

    def note_unannounced(self) -> None:
        """Another hub may have written what was not announced here: read the store before the next replay."""

    def await_settled(self, on_done: OnDone) -> None:
        """Call back when every write that was asked for here is durable, or given up."""


class _Waiter:
    """A replay that waits for the answers of `left` hubs."""

    __slots__ = ("left", "on_asked", "on_done")

    def __init__(self, left: int, on_asked: OnAsked, on_done: OnDone) -> None:
        self.left = left
        self.on_asked = on_asked
        self.on_done = on_done

    def answered(self) -> None:
        self.left -= 1
        if not self.left:
            self.on_done()


class _Round:
    """What is asked of one hub about one tenant. `waiting`: for the answer to the question `number`; `following`: for that to the next one."""

    __slots__ = ("following", "number", "waiting")

    def __init__(self, number: int, waiting: list[_Waiter]) -> None:
        self.number = number
        self.waiting = waiting
        self.following: list[_Waiter] = []


class RetainedPeers:
    """Fulfils `Receiver` and `RouteObserver`, and what the tenants' package asks of other hubs. On the reactor thread.

    Invariant: one question for each hub and tenant is on its way. Who asks meanwhile waits for the next one: the answer under way may part the
    messages too early for it.
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._tenants: dict[int, TenantRetained] = {}
        self._rounds: dict[tuple[PeerId, int], _Round] = {}
        self._unannounced: set[tuple[PeerId, int]] = set()  # who may not know all that was written here
        self._number = 0
        routes.observe(self)

    # --- tenants here

    def open_tenant(self, tenant_id: int, here: TenantRetained) -> None:
        """The store of a tenant is about to be read, before other hubs hear that it is open here."""
        self._tenants[tenant_id] = here

    def close_tenant(self, tenant_id: int) -> None:
        """Nobody waits for it any more."""
        self._tenants.pop(tenant_id, None)
        for key in [key for key in self._rounds if key[1] == tenant_id]:
            self._end_round(key)

    def has_open(self, tenant_id: int) -> bool:
        """Tell whether another hub may write to this tenant."""
        return bool(self._others(tenant_id))

    def announce_change(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """A write of this hub is durable. A hub whose link takes no more reads the store instead."""
        peers = self._others(tenant_id)
        if not peers:
            return
        body = Retained(tenant_id, topic, version, expires_at_ms, size).encode()
        for peer in peers:
            if not peer.offer(FrameType.RETAINED, body):
                self._unannounced.add((peer.id, tenant_id))

    def await_synced(self, tenant_id: int, on_asked: OnAsked, on_done: OnDone) -> bool:
        """Call back once every hub that has the tenant open has announced what it had routed before. False: there is nobody to ask.

        `on_asked`: called for each of them between the messages that it had routed before and those that it routes later.
        """
        peers = self._others(tenant_id)
        waiter = _Waiter(len(peers), on_asked, on_done)
        for peer in peers:
            running = self._rounds.get((peer.id, tenant_id))
            if running is None:
                self._ask(peer, tenant_id, [waiter])
            else:
                running.following.append(waiter)
        return bool(peers)

    def _others(self, tenant_id: int) -> list[RoutedPeer]:
        """Return the hubs that have the tenant open; none once it is closed here, although work with it may go on: they take no frame of it."""
        return self._routes.having_open(tenant_id) if self._routes.is_open(tenant_id) else []

    def _ask(self, peer: RoutedPeer, tenant_id: int, waiting: list[_Waiter]) -> None:
        self._number += 1
        self._rounds[peer.id, tenant_id] = _Round(self._number, waiting)
        peer.announce(FrameType.SYNC, TenantQuestion(tenant_id, self._number).encode())

    # --- what other hubs do

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: it matters when it opens a tenant."""

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: routes say it for each tenant."""

    def peer_opened(self, peer: PeerId, tenant_id: int) -> None:
        """Fulfils `RouteObserver`: what was written here before was not announced to it."""
        if tenant_id in self._tenants:
            self._unannounced.add((peer, tenant_id))

    def peer_left(self, peer: PeerId, tenant_id: int, *, is_gone: bool) -> None:
        """Fulfils `RouteObserver`: nobody waits for it. One that is gone may have written what it could not announce."""
        key = (peer, tenant_id)
        self._unannounced.discard(key)
        here = self._tenants.get(tenant_id)
        if is_gone and here is not None:
            here.note_unannounced()
        self._end_round(key)

    def retained_arrived(self, peer: PeerId, tenant_id: int, topic: bytes) -> None:
        """Fulfils `RouteObserver`."""
        here = self._tenants.get(tenant_id)
        if here is not None:
            here.note_arrival(peer, topic)

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError: it is malformed, or of a tenant that the peer has not open."""
        sender = self._routes.peer(peer)
        if sender is None:
            return  # it is gone, or this hub is closing
        if frame_type == FrameType.RETAINED:
            self._take_change(sender, Retained.decode(body))
        elif frame_type == FrameType.SYNC:
            self._take_question(sender, TenantQuestion.decode(body))
        else:
            self._take_answer(sender, Synced.decode(body))

    def _take_change(self, sender: RoutedPeer, change: Retained) -> None:
        sender.require_open(change.tenant_id)
        here = self._tenants.get(change.tenant_id)
        if here is not None:
            here.take_change(change.topic, change.version, change.expires_at_ms, change.size)

    def _take_question(self, sender: RoutedPeer, asked: TenantQuestion) -> None:
        sender.require_open(asked.tenant_id)
        answer = Synced(asked.tenant_id, asked.number, is_settled=False, is_complete=True)
        sender.announce(FrameType.SYNCED, answer.encode())
        here = self._tenants.get(asked.tenant_id)
        settled = partial(self._answer, sender.id, asked)
        if here is None:
            settled()
        else:
            here.await_settled(settled)

    def _answer(self, peer: PeerId, asked: TenantQuestion) -> None:
        """What was routed before the question is durable, and announced unless the link took no more."""
        sender = self._routes.peer(peer)
        if sender is None:
            return
        key = (peer, asked.tenant_id)
        answer = Synced(asked.tenant_id, asked.number, is_settled=True, is_complete=key not in self._unannounced)
        self._unannounced.discard(key)
        sender.announce(FrameType.SYNCED, answer.encode())

    def _take_answer(self, sender: RoutedPeer, answer: Synced) -> None:
        key = (sender.id, answer.tenant_id)
        asked = self._rounds.get(key)
        if asked is None or asked.number != answer.number:
            return  # the tenant has been closed since, here or there
        if not answer.is_settled:
            for waiter in asked.waiting:
                waiter.on_asked(sender.id)
            return
        if not answer.is_complete:
            here = self._tenants.get(answer.tenant_id)
            if here is not None:
                here.note_unannounced()
        del self._rounds[key]
        if asked.following:
            self._ask(sender, answer.tenant_id, asked.following)
        for waiter in asked.waiting:
            waiter.answered()

    def _end_round(self, key: tuple[PeerId, int]) -> None:
        """A hub does not answer any more: what came from it had been routed before, and nothing comes later."""
        ended = self._rounds.pop(key, None)
        if ended is not None:
            for waiter in (*ended.waiting, *ended.following):
                waiter.on_asked(key[0])
                waiter.answered()
