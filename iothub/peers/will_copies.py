"""Copies of the Wills of transient sessions at two other hubs: when the hub that has the client is gone, one of them publishes the Will.

Knows no session, no broker and no socket. Sans I/O. No log knows these Wills, which end with their connections.

    a client connects with a Will -> WILL to the first two hubs by their weights for the key, without this one
    its connection ends -> this hub publishes the Will if it must be, and then the copies are dropped
    this hub is gone -> the first of the two publishes, and says so: the second one drops its copy
    the first one is gone before it has said so -> the second one publishes

Invariants: what a hub keeps of another is what that one has sent last, in the order of its link. A second copy outlives its hub for `ORPHANED_S`
at most: the first hub may have died with it, and that is known a little later. Whoever publishes uses the Will's message id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from iothub.base.clock import BootClock
from iothub.engine.filters import check_topic_name
from iothub.peers.frames import BadFrameError, FrameType, is_number, number_in, pack, unpack
from iothub.peers.ports import Announcer, PeerId
from iothub.peers.view import Key, View

WILL_TYPES = (FrameType.WILL,)
COPIES = 2
ORPHANED_S = 30.0

_Identity: TypeAlias = tuple[Key, bytes]

_ID_BYTES = 16
_TOPIC_BYTES = 65_535  # what MQTT itself allows, and so of levels
_PART_BYTES = 1 << 18  # of each text and each bytes: a Will is bounded by CONNECT, which has 128 KiB at most


@dataclass(frozen=True, slots=True)
class WillBody:
    """A Will and the session that it is of, in what another hub needs to publish it by the device's rights."""

    device: str
    device_id: int
    version: int
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    expiry_s: int | None

    @classmethod
    def of(cls, fields: object) -> WillBody:
        """Raises BadFrameError."""
        if not isinstance(fields, dict) or set(fields) != set(_KINDS):
            raise BadFrameError(f"field will is {fields!r:.40}, expected a Will")
        for name, kind in _KINDS.items():
            value = fields[name]
            if name == "expiry_s" and value is None:
                continue
            if type(value) is not kind or (kind is int and not is_number(value)):
                raise BadFrameError(f"field {name} is {value!r:.40}, expected {kind.__name__}")
        if fields["qos"] > 2 or check_topic_name(fields["topic"], _TOPIC_BYTES, _TOPIC_BYTES):
            raise BadFrameError("a Will with a QoS above 2, or without a Topic Name")
        return cls(**fields)


_KINDS: Mapping[str, type] = {
    "device": str,
    "device_id": int,
    "version": int,
    "topic": bytes,
    "payload": bytes,
    "qos": int,
    "retain": bool,
    "properties": bytes,
    "expiry_s": int,
}


@dataclass(frozen=True, slots=True)
class WillCopy:
    """`before`: the hub that publishes it if it lives; None: the receiver. `will`: None: drop what was kept by this id."""

    TYPE: ClassVar[FrameType] = FrameType.WILL
    key: Key
    message_id: bytes
    will: WillBody | None
    before: PeerId | None = None

    @property
    def identity(self) -> _Identity:
        return self.key, self.message_id

    def encode(self) -> bytes:
        will = None if self.will is None else {name: getattr(self.will, name) for name in _KINDS}
        before = None if self.before is None else list(self.before)
        tenant_id, client_id = self.key
        return pack({"tenant": tenant_id, "client": client_id, "id": self.message_id, "before": before, "will": will})

    @classmethod
    def decode(cls, body: bytes) -> WillCopy:
        """Raises BadFrameError."""
        fields = unpack(body, text_bytes=_PART_BYTES, items=16)
        client_id, message_id = fields.get("client"), fields.get("id")
        if not isinstance(client_id, str) or not client_id:
            raise BadFrameError(f"field client is {client_id!r:.40}, expected a Client Identifier")
        if not isinstance(message_id, bytes) or len(message_id) != _ID_BYTES:
            raise BadFrameError(f"field id is {message_id!r:.40}, expected {_ID_BYTES} bytes")
        will = fields.get("will")
        return cls(
            (number_in(fields, "tenant"), client_id),
            message_id,
            None if will is None else WillBody.of(will),
            _peer(fields.get("before")),
        )


Publish = Callable[[WillCopy], None]
Own = Callable[[], Iterable[WillCopy]]


class WillCopies:
    """Fulfils `Receiver` of links. On the reactor thread. `publish`: a Will of a hub that is gone; `own`: those of all clients of this hub."""

    def __init__(self, me: PeerId, links: Announcer, publish: Publish, own: Own, clock: BootClock) -> None:
        self._me = me
        self._links = links
        self._publish = publish
        self._list_own = own
        self._clock = clock
        self._view: View | None = None  # None: this hub has always been alone
        self._linked: set[PeerId] = set()
        self._own: dict[Key, WillCopy] = {}
        self._kept: dict[PeerId, dict[Key, WillCopy]] = {}
        self._orphaned: dict[PeerId, dict[_Identity, tuple[float, WillCopy]]] = {}  # by the hub that is to publish them
        self._gone: set[PeerId] = set()

    def __len__(self) -> int:
        """How many copies this hub keeps for others."""
        return sum(map(len, self._kept.values()))

    # --- this hub's clients

    def keep(self, copy: WillCopy) -> None:
        """A client has connected with this Will."""
        if self._view is not None:
            self._own[copy.key] = copy
            for peer, before in self._keepers(copy.key, self._view).items():
                self._send(peer, replace(copy, before=before))

    def drop(self, key: Key, message_id: bytes) -> None:
        """The Will is published, or must not be; a later one of the key stays."""
        copy = self._own.get(key)
        if copy is not None and copy.message_id == message_id:
            del self._own[key]
            if self._view is not None:
                self._drop_at(copy, self._keepers(key, self._view))

    def published(self, copy: WillCopy) -> None:
        """A Will of a hub that is gone is published here: whoever keeps the other copy, by that hub's view, drops it."""
        self._drop_at(copy, list(self._linked))

    # --- who there is

    def set_view(self, view: View) -> None:
        """Say at each look which hubs there are: copies move to the first ones by their weights. A hub that is alone leaves them where they are."""
        for gone in [each for each in self._orphaned if each not in self._linked and each not in view.members]:
            self._publish_orphaned(gone)  # it was never linked to this hub
        self._forget_old()
        before = self._view
        if before == view or len(view.members) == 1:
            return
        self._view = view
        if before is None:
            self._own = {copy.key: copy for copy in self._list_own()}
        for copy in self._own.values():
            old = {} if before is None else self._keepers(copy.key, before)
            new = self._keepers(copy.key, view)
            self._drop_at(copy, old.keys() - new.keys())
            for peer, first in new.items():
                if peer not in old or old[peer] != first:
                    self._send(peer, replace(copy, before=first))

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`."""
        self._linked.add(peer)
        if self._view is not None:
            for copy in self._own.values():
                keepers = self._keepers(copy.key, self._view)
                if peer in keepers:
                    self._send(peer, replace(copy, before=keepers[peer]))

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: publish what is this hub's to publish."""
        now = self._clock.boottime()
        self._linked.discard(peer)
        self._gone.add(peer)
        self._publish_orphaned(peer)
        for copy in self._kept.pop(peer, {}).values():
            if copy.before is None or copy.before in self._gone:
                self._publish(copy)
            else:
                self._orphaned.setdefault(copy.before, {})[copy.identity] = now, copy

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError: it is malformed."""
        del frame_type
        copy = WillCopy.decode(body)
        if peer not in self._linked:
            return
        kept = self._kept.setdefault(peer, {})
        if copy.will is not None:
            kept[copy.key] = copy
            return
        _remove(kept, copy)
        for others in self._kept.values():  # it may know earlier than this hub that the Will's own hub is gone
            found = others.get(copy.key)
            if found is not None and found.before == peer:
                _remove(others, copy)
        self._orphaned.get(peer, {}).pop(copy.identity, None)

    # --- private

    def _publish_orphaned(self, first: PeerId) -> None:
        """The hub that was to publish these is gone, too."""
        self._forget_old()
        for _, copy in self._orphaned.pop(first, {}).values():
            self._publish(copy)

    def _forget_old(self) -> None:
        since = self._clock.boottime() - ORPHANED_S
        for first, copies in list(self._orphaned.items()):
            self._orphaned[first] = {identity: each for identity, each in copies.items() if each[0] >= since}
            if not self._orphaned[first]:
                del self._orphaned[first]

    def _keepers(self, key: Key, view: View) -> dict[PeerId, PeerId | None]:
        """Return the hubs that keep a Will of this hub, and which hub is before each of them."""
        ranked = [member for member in view.ranked(key) if member != self._me][:COPIES]
        return {member: None if at == 0 else ranked[0] for at, member in enumerate(ranked)}

    def _drop_at(self, copy: WillCopy, peers: Iterable[PeerId]) -> None:
        for peer in peers:
            self._send(peer, WillCopy(copy.key, copy.message_id, None))

    def _send(self, peer: PeerId, copy: WillCopy) -> None:
        if peer in self._linked:
            self._links.announce(peer, copy.TYPE, copy.encode())


def _remove(kept: dict[Key, WillCopy], copy: WillCopy) -> None:
    """A later Will of the key stays."""
    if copy.key in kept and kept[copy.key].message_id == copy.message_id:
        del kept[copy.key]


def _peer(value: object) -> PeerId | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(map(is_number, value)):
        raise BadFrameError(f"field before is {value!r:.40}, expected a hub")
    return PeerId(*value)
