"""Links with one rule broken each: the checks must find every one of them, or they would not find the same mistake of ours.

Knows no check: each mutant is a name and the functions that are put in place of those of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from iothub.base.reasons import LinkClose
from iothub.peers.connection import Connection
from iothub.peers.frames import BadFrameError, FrameType, Hello, encode
from iothub.peers.known_peer import KnownPeer
from iothub.peers.link import Link
from iothub.peers.links import Links
from iothub.peers.numbered import ACK_S, NumberedFrames, do_nothing
from iothub.peers.ports import PeerId, Wire
from tests.simulation.world import SimWire

_tick, _end, _meet, _attach, _is_readable = Link.tick, Links._end, Links._meet, Link.attach, SimWire.is_readable


def _note_at_receipt(link: Any, frame_type: FrameType, number: int, body: bytes) -> None:
    if number <= link.applied:
        return
    if number != link.applied + 1:
        raise BadFrameError("a gap")
    link.applied = number
    link.__dict__.setdefault("late", []).append((frame_type, body))
    link._ack_due = link._clock.boottime() + ACK_S


def _apply_late(link: Any, now: float) -> None:
    for frame_type, body in link.__dict__.pop("late", []):
        link._apply(link.peer, frame_type, body)
    _tick(link, now)


def _end_but_relinked(links: Links, connection: Connection, reason: LinkClose, detail: str) -> None:
    if reason is not LinkClose.RELINKED:
        _end(links, connection, reason, detail)


def _attach_without_resend(link: Any, wire: Wire, applied_by_peer: int, now: float) -> None:
    link._kept_bytes -= sum(map(len, link._written))
    link._acknowledged += len(link._written)
    link._written.clear()
    _attach(link, wire, link._acknowledged, now)


def _apply_any_later(link: Any, frame_type: FrameType, number: int, body: bytes) -> None:
    if number > link.applied:
        link._apply(link.peer, frame_type, body)
        link.applied = number
        link._ack_due = link._clock.boottime() + ACK_S


def _apply_all(link: Any, frame_type: FrameType, number: int, body: bytes) -> None:
    link._apply(link.peer, frame_type, body)
    link.applied = max(number, link.applied)
    link._ack_due = link._clock.boottime() + ACK_S


def _attach_all(link: Any, wire: Wire, applied_by_peer: int, now: float) -> None:
    _attach(link, wire, link._acknowledged, now)


def _meet_as_the_same(links: Any, connection: Connection, hello: Hello) -> KnownPeer:
    known = links._peers.get(hello.node)
    if known is not None and known.link is not None and known.id.incarnation < hello.incarnation:
        known.id = known.link.peer = PeerId(hello.node, hello.incarnation)
        known.link.applied = 0
        return known
    return _meet(links, connection, hello)


def _forget_unreported(links: Any, peer: KnownPeer) -> None:
    if peer.connection is not None:
        links._end(peer.connection, LinkClose.PEER_GONE, "")
    del links._peers[peer.id.node]
    links._floors[peer.id.node] = peer.id.incarnation + 1


def _note_echo_when_received(link: Any, _sent_ns: int, _wall_ms: int | None) -> None:
    link.evidence = link._clock.boottime()


def _write_all(link: Any) -> None:
    while link._wire is not None and link._waiting:
        link._written.append(link._waiting.popleft())
        link._write(link._written[-1])


def _send_any(link: Any, frame_type: FrameType, body: bytes) -> None:
    data = encode(frame_type, body, link._acknowledged + link.unacknowledged_frames + 1)
    link._kept_bytes += len(data)
    link._waiting.append(data)
    link._write_waiting()


def _is_readable_unless_full(wire: Any) -> bool:
    link = wire.owner.link if isinstance(wire.owner, Connection) else None
    return _is_readable(wire) and (link is None or link.load_bytes < link._settings.link_bytes)


def announce_first(link: Any, frame_type: FrameType, body: bytes) -> int:
    """Announce before what is gathered for the peer."""
    flush, link.flush = link.flush, do_nothing
    try:
        return NumberedFrames.announce(link, frame_type, body)
    finally:
        link.flush = flush


_LINK, _LINKS = "iothub.peers.link.Link", "iothub.peers.links.Links"
MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "acknowledged when received": {f"{_LINK}.apply_frame": _note_at_receipt, f"{_LINK}.tick": _apply_late},
    "old connection read on": {f"{_LINKS}._end": _end_but_relinked},
    "nothing sent again": {f"{_LINK}.attach": _attach_without_resend},
    "a gap passed over": {f"{_LINK}.attach": _attach_without_resend, f"{_LINK}.apply_frame": _apply_any_later},
    "applied twice": {f"{_LINK}.attach": _attach_all, f"{_LINK}.apply_frame": _apply_all},
    "a new incarnation taken for the old one": {f"{_LINKS}._meet": _meet_as_the_same},
    "an old incarnation accepted": {"iothub.peers.admission.fault_of_incarnation": lambda *_: None},
    "gone without a word": {f"{_LINKS}._forget": _forget_unreported},
    "evidence of the echo's arrival": {f"{_LINK}._note_echo": _note_echo_when_received},
    "silence not noticed": {f"{_LINK}.is_silent": lambda *_: False},
    "not dialled again": {
        "iothub.peers.backoff.Backoff.note_failure": lambda backoff, _now: setattr(backoff, "due", 1e9)
    },
    "all written at once": {f"{_LINK}._write_waiting": _write_all},
    "no bound": {f"{_LINK}.send": _send_any},
    "not read while full": {"tests.simulation.world.SimWire.is_readable": _is_readable_unless_full},
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Run the block with a mutant in place of the product."""
    with ExitStack() as stack:
        for target, replacement in MUTANTS[name].items():
            stack.enter_context(mock.patch(target, replacement))
        yield
