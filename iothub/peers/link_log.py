"""The log lines of links; a refusal at most once a minute for each peer and reason.

Knows no alarm and no metric: who has these fulfils the same Protocol.
"""

from __future__ import annotations

from iothub.base import log
from iothub.base.clock import BootClock
from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.peers.ports import PeerId

REPEAT_S = 60.0
_REMEMBERED = 256
_IN_ORDER = (LinkClose.LEFT, LinkClose.CLOSED, LinkClose.RELINKED)

_log = log.get(__name__)


class LinkLog:
    """Fulfils `LinkObserver`."""

    def __init__(self, clock: BootClock) -> None:
        self._clock = clock
        self._refused: dict[tuple[int | None, PeerRefusal, bool], float] = {}

    def link_up(self, peer: PeerId, name: str, address: str) -> None:
        _log.info("link to another hub is up", peer=peer.node, incarnation=peer.incarnation, name=name, address=address)

    def link_down(self, peer: PeerId, reason: LinkClose, detail: str) -> None:
        log_line = _log.info if reason in _IN_ORDER else _log.warning
        log_line(
            "link to another hub is down",
            peer=peer.node,
            incarnation=peer.incarnation,
            reason=reason.value,
            detail=detail,
        )

    def refused(self, node: int | None, address: str, refusal: PeerRefusal, detail: str, *, by_peer: bool) -> None:
        key, now = (node, refusal, by_peer), self._clock.boottime()
        if now - self._refused.get(key, float("-inf")) < REPEAT_S:
            return
        if len(self._refused) >= _REMEMBERED:
            self._refused.clear()
        self._refused[key] = now
        sentence = "another hub refuses this one" if by_peer else "this hub refuses another one"
        _log.warning(sentence, peer=node, address=address, reason=refusal.value, detail=detail)

    def peer_gone(self, peer: PeerId, dropped_frames: int, dropped_bytes: int) -> None:
        _log.warning(
            "another hub is gone: what it had not acknowledged is dropped",
            peer=peer.node,
            incarnation=peer.incarnation,
            reason=LinkClose.PEER_GONE.value,
            frames=dropped_frames,
            bytes=dropped_bytes,
        )
