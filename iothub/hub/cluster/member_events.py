"""What becomes of the other hubs, as events: for plug-ins, `$SYS`, log and metrics.

Knows no link's inside: it observes links, passes on what happens to their alarms, and says what has changed for a hub.

Invariant: an event says something new. A link that another connection replaces in the same turn is none, nor is the end of this hub's own links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from iothub.base import log as logging
from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.hub.phase import Phase
from iothub.peers.ports import LinkObserver, LinkStatus, PeerId
from iothub_tenants.accounts.hubs import CUT_OFF, EVICTED, HubRow

_NO_EVENT = (
    LinkClose.RELINKED,
    LinkClose.CLOSED,
    LinkClose.LEFT,
    LinkClose.PEER_GONE,
)  # the last two: `peer_gone` says it

log = logging.get(__name__)


class MemberEventName(StrEnum):
    """The word in log, `$SYS`, metric and hook."""

    UP = "peer_up"  # its link works
    UNREACHABLE = "peer_unreachable"  # its link is down; by the accounts it may live
    EXPELLED = "peer_expelled"  # it may live, and was declared gone: it was cut off, or an administrator has evicted it
    DOWN = "peer_down"  # it has stopped, or its heartbeat has: this run of it does not come back
    VIEW = "cluster_view"  # other hubs serve clients than before


STATES = {
    MemberEventName.UP: "up",
    MemberEventName.UNREACHABLE: "unreachable",
    MemberEventName.EXPELLED: "expelled",
    MemberEventName.DOWN: "down",
}
_EXPELLED = (CUT_OFF, EVICTED)


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """One change. `reason`: of the link's end, or why the hub is gone.

    Of `cluster_view` it is this hub's number and name, and `reason` has the numbers of all that serve clients, this hub among them.
    """

    name: MemberEventName
    node: int
    hub: str
    reason: str = ""


OnMemberEvent = Callable[[MemberEvent], None]


class MemberEvents:
    """Fulfils `LinkObserver`. On the reactor thread. `counts`: for the metric."""

    def __init__(self, links: LinkObserver) -> None:
        """`links`: observes as well, before anybody hears of an event."""
        self._links = links
        self._hubs: dict[PeerId, tuple[MemberEventName, str]] = {}
        self._watchers: list[OnMemberEvent] = []
        self._gone: set[PeerId] | None = None  # as of the last look at the accounts; None: there was none
        self.view = ""  # the numbers of the hubs that serve clients
        self.counts: Counter[str] = Counter(dict.fromkeys(map(str, MemberEventName), 0))

    def watch(self, on_event: OnMemberEvent) -> None:
        """Notify somebody of each event; at composition."""
        self._watchers.append(on_event)

    # --- LinkObserver

    def link_up(self, peer: PeerId, name: str, address: str) -> None:
        self._links.link_up(peer, name, address)
        self._note(peer, MemberEventName.UP, name)

    def link_down(self, peer: PeerId, reason: LinkClose, detail: str) -> None:
        self._links.link_down(peer, reason, detail)
        if reason not in _NO_EVENT and peer in self._hubs:
            self._note(peer, MemberEventName.UNREACHABLE, self._hubs[peer][1], reason.value)

    def refused(self, node: int | None, address: str, refusal: PeerRefusal, detail: str, *, by_peer: bool) -> None:
        self._links.refused(node, address, refusal, detail, by_peer=by_peer)

    def peer_gone(self, peer: PeerId, dropped_frames: int, dropped_bytes: int) -> None:
        self._links.peer_gone(peer, dropped_frames, dropped_bytes)
        if peer in self._hubs:
            self._note(peer, MemberEventName.DOWN, self._hubs[peer][1])
            del self._hubs[peer]

    # --- by the accounts

    def judge_gone(self, rows: Iterable[HubRow]) -> None:
        """Look at the rows of all other hubs: who was expelled since the last look."""
        gone = {PeerId(row.number, row.incarnation): row for row in rows if row.is_gone}
        for peer, row in gone.items():
            if self._gone is not None and peer not in self._gone and row.gone_why in _EXPELLED:
                self._note(peer, MemberEventName.EXPELLED, row.name, row.gone_why)
        self._gone = set(gone)

    def judge_view(self, own: int, hub: str, others: Iterable[int]) -> None:
        """Look at the numbers of the other hubs that serve clients."""
        view = " ".join(map(str, sorted({own, *others})))
        if view == self.view:
            return
        self.view = view
        log.info("the hubs that serve clients have changed", change=MemberEventName.VIEW.value, nodes=view)
        self._tell(MemberEvent(MemberEventName.VIEW, own, hub, view))

    def is_first(self, own: int) -> bool:
        """Say whether this hub has the lowest number of those that serve clients."""
        return not self.view or int(self.view.partition(" ")[0]) == own

    # --- private

    def _note(self, peer: PeerId, name: MemberEventName, hub: str, reason: str = "") -> None:
        before = self._hubs.get(peer)
        if before is not None and before[0] is name:
            return
        self._hubs[peer] = name, hub
        log.info("another hub changed its state", change=name.value, node=peer.node, hub=hub, reason=reason)
        self._tell(MemberEvent(name, peer.node, hub, reason))

    def _tell(self, event: MemberEvent) -> None:
        self.counts[event.name] += 1
        for on_event in self._watchers:
            on_event(event)


@dataclass(frozen=True, slots=True)
class HubStates:
    """What `$SYS` says of hubs: this one, and the others as this one sees them. `statuses`: of the links; `view`: who serves clients."""

    number: int
    phase: Phase
    statuses: Callable[[], list[LinkStatus]]
    view: Callable[[], str] = str

    def all(self) -> Mapping[str, str]:
        """Return name and value of each figure."""
        peers = {
            self.peer(status.peer.node): STATES[
                MemberEventName.UP if status.state == "up" else MemberEventName.UNREACHABLE
            ]
            for status in self.statuses()
        }
        view = self.view()
        return {**self.own(), **({f"{self.number}/view": view} if view else {}), **peers}

    def own(self) -> Mapping[str, str]:
        return {f"{self.number}/state": "draining" if self.phase.is_draining else "up"}

    def peer(self, node: int) -> str:
        return f"{self.number}/peers/{node}"

    def after(self, event: MemberEvent) -> Mapping[str, str]:
        if event.name is MemberEventName.VIEW:
            return {f"{self.number}/view": event.reason}
        return {self.peer(event.node): STATES[event.name]}
