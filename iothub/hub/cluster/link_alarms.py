"""Alarms and log lines of links: which hubs refuse each other, which live by the accounts and are not reached, whose clock is wrong.

Knows no link. A refusal of somebody who has not proved which hub it is raises no alarm, or any program that finds the port could;
it has its line in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from iothub.base import log as logging
from iothub.base.clock import BootClock
from iothub.base.reasons import LinkClose, PeerRefusal, WireRefusal
from iothub.peers.cluster_clock import ClusterClock
from iothub.peers.link_log import REPEAT_S, LinkLog
from iothub.peers.ports import LinkStatus, PeerAddress, PeerId
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_tenants.accounts.hubs import CUT_OFF, ENDED, SILENT, HubRow

UNLINKED_S = 5.0  # a hub that starts is linked much sooner
WRONG_LOOKS = 3
_REMEMBERED = 256
_OF_THE_NETWORK = (WireRefusal.TIMEOUT, WireRefusal.CLOSED)  # nobody has refused anything
_OF_CERTIFICATES = (WireRefusal.CERTIFICATE_REFUSED, WireRefusal.CERTIFICATE_EXPIRED)
_GONE = {
    ENDED: (AlarmName.WORKER_ENDED, "its process ended, as its supervisor saw"),
    SILENT: (AlarmName.PEER_GONE, "its heartbeat and its link stood still for at least 5 s"),
    CUT_OFF: (
        AlarmName.PEER_EXPELLED,
        "both live, and for 5 s no link between the two worked: a cut network, or one of them stood still",
    ),
}

log = logging.get(__name__)


def clock_fault(clock: ClusterClock) -> str:
    """Return what is wrong with a clock, for a person."""
    side = f"clock_wrong: {abs(clock.offset_s):.0f} s {'ahead of' if clock.offset_s > 0 else 'behind'}"
    if clock.has_majority:
        return f"{side} the hubs by whose time this one goes: have NTP set this machine's clock"
    return f"{side} the other hubs, and no majority says which is right: have NTP set the clocks of all machines"


class LinkAlarms:
    """Fulfils `iothub.peers.ports.LinkObserver`. On the reactor thread. Invariant: only hubs that live by the accounts have alarms."""

    def __init__(self, alarms: Alarms, clock: BootClock, on_told_gone: Callable[[], None] = lambda: None) -> None:
        """`on_told_gone`: called when a hub answers that it goes on without this one."""
        self._alarms = alarms
        self._clock = clock
        self._log = LinkLog(clock)
        self._troubles: dict[int, str] = {}  # why a hub is not linked
        self._own_certificate = ""  # that somebody who has connected refused it; empty once a link is up
        self._down: set[int] = set()  # at the last look
        self._raised: set[int] = set()
        self._gone: dict[int, AlarmName] = {}
        self._logged: dict[tuple[str, str], float] = {}
        self._on_told_gone = on_told_gone
        self._wrong_looks = 0
        self.clock_fault = ""  # what is wrong with this machine's clock

    def trouble(self, node: int) -> str:
        """Return why a hub is not linked. One that connects to this hub and does not get as far as its name has no cause of its own."""
        return self._troubles.get(node) or (self._own_certificate if node in self._down else "")

    def is_refused(self, node: int) -> bool:
        """Whether the two certificates or programs do not fit, though no hub has said its name."""
        word = self._troubles.get(node, "").partition(":")[0]
        return word in WireRefusal._value2member_map_ and word not in _OF_THE_NETWORK

    def judge(self, statuses: Iterable[LinkStatus]) -> None:
        """Look at all hubs that live by the accounts, once a second."""
        there = {status.peer.node: status for status in statuses}
        self._down = {node for node, status in there.items() if status.state == "down"}
        for node in self._raised - there.keys():
            self._clear(node)
        for node in self._troubles.keys() - there.keys():
            del self._troubles[node]
        for node, status in there.items():
            if status.state == "down" and status.since_s >= UNLINKED_S:
                self._raise(AlarmName.PEER_SILENT, node, self.trouble(node) or "there is no link to it")

    def judge_gone(self, rows: Iterable[HubRow]) -> None:
        """Look at the rows of all other hubs: who was declared gone has its alarm until it begins again."""
        gone = {row.number: row for row in rows if row.gone_why in _GONE}
        for node in self._gone.keys() - gone.keys():
            self._alarms.clear(self._gone.pop(node), subject=str(node))
        for node, row in gone.items():
            name, why = _GONE[row.gone_why]
            if self._gone.get(node, name) is not name:
                self._alarms.clear(self._gone[node], subject=str(node))
            self._gone[node] = name
            self._alarms.raise_(name, subject=str(node), detail=f"node {row.gone_by} declared it gone: {why}")

    def judge_clock(self, clock: ClusterClock) -> None:
        """Look once a second whether this machine's clock is right. One that was set everywhere at once is, a moment later."""
        self._wrong_looks = 0 if clock.is_right else self._wrong_looks + 1
        self.clock_fault = clock_fault(clock) if self._wrong_looks >= WRONG_LOOKS else ""
        self._alarms.set(AlarmName.CLOCK_WRONG, bool(self.clock_fault), detail=self.clock_fault)

    # --- LinkObserver

    def link_up(self, peer: PeerId, name: str, address: str) -> None:
        self._log.link_up(peer, name, address)
        self._own_certificate = ""
        self._troubles.pop(peer.node, None)
        self._clear(peer.node)

    def link_down(self, peer: PeerId, reason: LinkClose, detail: str) -> None:
        self._log.link_down(peer, reason, detail)
        self._troubles[peer.node] = f"{reason.value}: {detail}" if detail else reason.value
        if reason is LinkClose.SILENT:
            self._raise(AlarmName.PEER_SILENT, peer.node, "it has not answered a ping for 2 s")

    def refused(self, node: int | None, address: str, refusal: PeerRefusal, detail: str, *, by_peer: bool) -> None:
        self._log.refused(node, address, refusal, detail, by_peer=by_peer)
        if by_peer and refusal is PeerRefusal.GONE:
            self._on_told_gone()
        if node is not None and refusal is not PeerRefusal.GONE:  # that is decided, and whoever is gone begins again
            text = f"{refusal.value}: {detail}" if detail else refusal.value
            self._troubles[node] = f"it refuses this hub: {text}" if by_peer else text
            self._raise(AlarmName.PEER_REFUSED, node, self._troubles[node])

    def peer_gone(self, peer: PeerId, dropped_frames: int, dropped_bytes: int) -> None:
        self._log.peer_gone(peer, dropped_frames, dropped_bytes)
        self._troubles.pop(peer.node, None)
        self._clear(peer.node)

    # --- before there is a link

    def not_connected(self, peer: PeerAddress, text: str) -> None:
        """A dial came to nothing."""
        self._troubles[peer.node] = text
        if self._is_news(f"{peer.node}", text):
            log.warning("no connection to a hub, will retry", peer=peer.node, address=peer.address, cause=text)
        if self.is_refused(peer.node):
            self._raise(AlarmName.PEER_REFUSED, peer.node, text)

    def not_accepted(self, address: str, refusal: WireRefusal, detail: str) -> None:
        """Somebody has connected and is no hub of this installation, or does not take this one for one."""
        if refusal in _OF_CERTIFICATES:
            self._own_certificate = f"{refusal.value}: a connection from {address} ended: {detail}"
        if self._is_news(address.rpartition(":")[0], refusal):
            log.warning("connection at cluster.listen refused", address=address, reason=refusal.value, detail=detail)

    # --- private

    def _is_news(self, who: str, what: str) -> bool:
        """Whether it was not said within a minute."""
        now = self._clock.boottime()
        if now - self._logged.get((who, what), float("-inf")) < REPEAT_S:
            return False
        if len(self._logged) >= _REMEMBERED:
            self._logged.clear()
        self._logged[who, what] = now
        return True

    def _raise(self, name: AlarmName, node: int, detail: str) -> None:
        self._raised.add(node)
        self._alarms.raise_(name, subject=str(node), detail=detail)

    def _clear(self, node: int) -> None:
        self._raised.discard(node)
        for name in (AlarmName.PEER_REFUSED, AlarmName.PEER_SILENT):
            self._alarms.clear(name, subject=str(node))
