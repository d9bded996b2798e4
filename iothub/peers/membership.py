"""Who is a member, by the rows of the accounts and by the links: who is declared gone, when this hub goes on without it, and until when it may route.

Knows no database, no socket and no session: it is given each look at the rows, and says what is to be written. Times are of `boottime`.

    joining -> up                  with a link to every member, in a look at the rows that is still true when it is written
    gone: silent                   its counter stood still and the link to it was down, both for GONE_S; between members as below, for STILL_S
    gone: cut_off                  its counter moves, and the link to it was down for CUT_OFF_S and in CUT_OFF_LOOKS looks in a row
    gone: left                     it says so itself
    gone: evicted                  an administrator says so, whatever its counter and its link do
    read as gone -> gone on without it   GO_ON_S later, at once if it left, or if somebody has gone on without it before

Invariants. Gone is what is written in the row, for whatever reason, and nothing takes it back. Whoever declares a hub gone answers no ping of it from
before the writing on; whoever reads it answers none from then on. So a hub that is gone loses its evidence, and its last look at its own row is
older than LOOK_S, before anybody goes on without it: GO_ON_S is more than both. Nobody is up without a link to every member, and whoever was ever
linked counts as one: so the links alone say who there is while the accounts cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from iothub.base.clock import BootClock
from iothub.peers.link import SILENT_S
from iothub.peers.ports import PeerId
from iothub.peers.route_term import RouteTerm

LOOK_S = 3.0  # so long a look at the own row says that this hub is not gone, from its begin
GONE_S = 10.0
CUT_OFF_S = 5.0
CUT_OFF_LOOKS = 4
STILL_S = 3.0  # of two hubs that are cut off from each other, one whose counter stands still goes, however many links its row says
GO_ON_S = 4.5
UNLINKED_S = (
    20.0  # without any link and without a look at its row a hub gives up, so that its clients go where they are served
)
GAP_S = 2.0  # at most so much of the time between two looks counts as stillness: the accounts may have been unreachable for all hubs

JOINING, UP = "joining", "up"
SILENT, CUT_OFF, EVICTED, UNLINKED = "silent", "cut_off", "evicted", "unlinked"


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A hub as its row has it. `is_settled`: it has left, or somebody has gone on without it before."""

    peer: PeerId
    state: str
    counter: int
    links: int
    is_gone: bool = False
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """All rows, this hub's among them, as one transaction read them; `began`: before it was asked for."""

    version: int
    rows: Sequence[MemberRow]
    began: float


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be written, unless who there is has changed since `version`. `gone`: who, and why; None: this hub is up."""

    version: int
    gone: PeerId | None = None
    why: str = ""


class MemberLinks(Protocol):
    """What is asked of the links. Fulfilled by `iothub.peers.links`."""

    def linked(self) -> Iterable[PeerId]:
        """Return all that were ever linked and are not dropped."""
        ...

    def is_linked(self, peer: PeerId) -> bool: ...

    def down_for(self, peer: PeerId) -> float:
        """Return for how many seconds the link to a peer has been down, from when it was known; infinity: it is not known."""
        ...

    def evidence_age(self, peer: PeerId) -> float: ...

    def mute(self, peer: PeerId) -> None:
        """Answer nothing of a peer, and do not say why."""
        ...

    def unmute(self, peer: PeerId) -> None: ...

    def expel(self, peer: PeerId) -> None:
        """Answer a peer that it is gone, and nothing else."""
        ...

    def drop(self, peer: PeerId) -> None:
        """Go on without a peer, for good."""
        ...


@dataclass(slots=True)
class _Seen:
    """Another hub since its incarnation was first read."""

    row: MemberRow
    still_s: float = 0.0
    down_looks: int = 0
    gone_at: float = math.inf  # when that was first read
    is_passed: bool = False  # this hub has gone on without it

    @property
    def passes_at(self) -> float:
        """When this hub goes on without it."""
        return -math.inf if self.row.is_gone and self.row.is_settled else self.gone_at + GO_ON_S


class Membership:
    """This hub among the others, for one incarnation. `links`: None: it has none, and knows the others by their rows alone."""

    def __init__(self, me: PeerId, links: MemberLinks | None, clock: BootClock) -> None:
        self._me = me
        self._links = links
        self._clock = clock
        self._others: dict[int, _Seen] = {}
        self._evicted: set[PeerId] = set()  # an administrator says that they are gone
        self._writing: PeerId | None = None  # is being declared gone: muted until it is known whether that was written
        self._look_began = -math.inf
        self._unlinked_since: float | None = None
        self.is_up = False
        self._is_ready = False
        self.gone = ""  # why this hub itself is gone: it serves nobody any more, and begins again
        self.may_route = RouteTerm(clock.boottime, self._may_route_longer)  # whether `routes_until` is still to come

    # --- a look at the rows

    def take_look(self, look: Look) -> Change | None:
        """Take all rows; return what is to be written. `written` must be called with it."""
        mine = next((row for row in look.rows if row.peer.node == self._me.node), None)
        if mine is None or mine.peer != self._me or mine.is_gone:
            self._end("gone")
            return None
        self.is_up |= mine.state != JOINING  # also when nobody has answered that it was written
        gap_s = min(max(look.began - self._look_began, 0.0), GAP_S)
        self._look_began = look.began
        self._set_term()
        for row in look.rows:
            if row is not mine:
                self._note_row(row, gap_s)
        self._resolve_writing()
        self.pass_time()
        return self._next_change(look.version)

    def written(self, change: Change, *, is_done: bool) -> None:
        """Note whether a change was written. If nobody knows, this is not called: the next look will tell."""
        if change.gone is None:
            self.is_up |= is_done
            return
        seen = self._others.get(change.gone.node)
        if self._writing != change.gone or seen is None or seen.row.peer != change.gone:
            return
        self._writing = None
        if is_done:
            self._note_gone(seen)
        elif self._links is not None:
            self._links.unmute(change.gone)

    def pass_time(self) -> None:
        """Go on without those that were read as gone long enough ago, and see how long this hub has been without any link. At `due`."""
        now = self._clock.boottime()
        for seen in self._others.values():
            if not seen.is_passed and now >= seen.passes_at:
                seen.is_passed = True
                if self._links is not None:
                    self._links.drop(seen.row.peer)
        if self.routes_until() > now or not self._is_unlinked():
            self._unlinked_since = None
        elif self._unlinked_since is None:
            self._unlinked_since = now
        elif now - self._unlinked_since >= UNLINKED_S:
            self._end(UNLINKED)

    def due(self) -> float:
        """Return when `pass_time` has something to do, if no link and no row changes; infinity: never."""
        dues = [seen.passes_at for seen in self._others.values() if not seen.is_passed]
        if self._is_unlinked() and not self.gone:
            since = self._unlinked_since
            dues.append(self.routes_until() if since is None else since + UNLINKED_S)
        return min(dues, default=math.inf)

    def become_ready(self) -> None:
        """Leave `joining` from now on, once there is a link to every member."""
        self._is_ready = True

    def evict(self, peer: PeerId) -> None:
        """Declare a hub gone at the next look, whatever its counter and its link do, until `spare`."""
        self._evicted.add(peer)

    def spare(self, peer: PeerId) -> None:
        self._evicted.discard(peer)

    def told_gone(self) -> None:
        """Note that a member has read that this hub is gone."""
        self._end("gone")

    def _end(self, why: str) -> None:
        self.gone = self.gone or why
        self._set_term()

    def _set_term(self) -> None:
        self.may_route.until = -math.inf if self.gone else self._look_began + LOOK_S

    # --- what it means

    def routes_until(self) -> float:
        """Return until when this hub may read publishers and acknowledge what it has routed, as far as is known now.

        A hub that is alone needs its look: who joins where nobody can be linked is seen in the rows alone.
        """
        if self.gone:
            return -math.inf
        by_look = self._look_began + LOOK_S
        if self._links is None:
            return by_look
        now, links = self._clock.boottime(), self._links
        ages = [links.evidence_age(peer) for peer in self.members().union(links.linked())]
        return max(by_look, now - max(ages) + SILENT_S) if ages else by_look

    def _may_route_longer(self) -> bool:
        """The last look does not say so any more."""
        return not self.gone and self._clock.boottime() < self.routes_until()

    def members(self) -> frozenset[PeerId]:
        """Return the other hubs that serve clients, by their rows: nobody is acknowledged what they do not know."""
        present = (seen.row for seen in self._others.values() if not seen.is_passed)
        return frozenset(row.peer for row in present if row.state != JOINING)

    def is_gone(self, peer: PeerId) -> bool:
        """Tell whether this incarnation was read, or written, as gone, or another one has followed it."""
        seen = self._others.get(peer.node)
        return seen is not None and (seen.row.peer.incarnation > peer.incarnation or seen.gone_at < math.inf)

    def is_present(self, peer: PeerId) -> bool:
        """Tell whether this hub has not gone on without a hub."""
        seen = self._others.get(peer.node)
        return seen is not None and seen.row.peer == peer and not seen.is_passed

    def still_s(self, peer: PeerId) -> float:
        """Return for how long its counter has not moved, as far as somebody looked."""
        seen = self._others.get(peer.node)
        return seen.still_s if seen is not None and seen.row.peer == peer else 0.0

    def links_up(self) -> int:
        """Return how many links of members are up: what the own row says of it."""
        links = self._links
        return 0 if links is None else sum(map(links.is_linked, self.members()))

    # --- private

    def _note_row(self, row: MemberRow, gap_s: float) -> None:
        seen = self._others.get(row.peer.node)
        if seen is None or seen.row.peer != row.peer:
            if seen is not None and seen.row.peer.incarnation > row.peer.incarnation:
                return
            seen = self._others[row.peer.node] = _Seen(row)
        else:
            seen.still_s = 0.0 if row.counter != seen.row.counter else seen.still_s + gap_s
        seen.row = row
        if self._links is not None:
            seen.down_looks = 0 if self._links.is_linked(row.peer) else seen.down_looks + 1
        if row.is_gone:
            self._note_gone(seen)

    def _note_gone(self, seen: _Seen) -> None:
        if seen.gone_at == math.inf:
            seen.gone_at = self._clock.boottime()
            if self._links is not None:
                self._links.expel(seen.row.peer)

    def _resolve_writing(self) -> None:
        """This look tells whether the last writing that nobody answered was done."""
        peer, self._writing = self._writing, None
        if peer is not None and self._links is not None:
            seen = self._others.get(peer.node)
            if seen is None or seen.row.peer != peer or seen.gone_at == math.inf:
                self._links.unmute(peer)

    def _next_change(self, version: int) -> Change | None:
        for seen in self._others.values():
            why = "" if seen.gone_at < math.inf else self._why_gone(seen)
            if why:
                self._writing = seen.row.peer
                if self._links is not None:
                    self._links.mute(seen.row.peer)
                return Change(version, seen.row.peer, why)
        return Change(version) if self._may_be_up() else None

    def _why_gone(self, seen: _Seen) -> str:
        row, links = seen.row, self._links
        if row.peer in self._evicted:
            return EVICTED
        down_s = math.inf if links is None else links.down_for(row.peer)
        if links is not None and links.is_linked(row.peer):
            return ""
        if seen.still_s >= GONE_S and down_s >= GONE_S:
            return SILENT if self.is_up or not self._has_link() else ""  # else the members that live decide
        is_between_members = self.is_up and row.state != JOINING and links is not None
        if not is_between_members or down_s < CUT_OFF_S or seen.down_looks < CUT_OFF_LOOKS:
            return ""
        is_first = (self.links_up(), -self._me.node) > (row.links, -row.peer.node)
        return SILENT if seen.still_s >= STILL_S else CUT_OFF if is_first else ""

    def _may_be_up(self) -> bool:
        if self.is_up or not self._is_ready:
            return False
        links = self._links
        return links is None or all(links.evidence_age(peer) < SILENT_S for peer in self.members())

    def _is_unlinked(self) -> bool:
        return self.is_up and bool(self.members()) and not self._has_link()

    def _has_link(self) -> bool:
        links = self._links
        return links is not None and any(map(links.is_linked, self.members()))
