"""How far this hub and the others have applied the session log: a SUBACK of a persistent session waits until all of them route by it.

Knows no socket, no reactor, no event and no follower: whoever follows the log says which pages have been applied.

    a SUBSCRIBE is in the log at a place -> KNOW to the hubs that have the tenant open -> each reads the log up to there -> KNOWN -> SUBACK
    one cannot read it in time -> it reads no publisher of the tenant until it can -> PAUSED -> SUBACK
    a page of the log is applied, whoever asked -> KNOWN to every hub: it stands between the messages routed before and after
    a hub opens a tenant -> each OPENED brings a place -> it reads the log up to the highest one -> clients of the tenant are served

Invariant: what a hub sends after a KNOWN was routed by the log up to that place; what it sends after a PAUSED, too. So KNOWN
leaves in the turn in which a page has been applied, before a publisher is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.place_frames import TenantPlace, decode_known, encode_known
from iothub.peers.places import NOWHERE, Offsets, covers, joined
from iothub.peers.ports import PeerId

PLACE_TYPES = (FrameType.KNOW, FrameType.KNOWN, FrameType.PAUSED)
"""Answered by frames of their own: nobody waits for their acknowledgements."""

PATIENCE_S = (
    0.5  # whoever has waited for this hub's reading of the log for so long gets PAUSED, after twice as long at most
)

OnDone = Callable[[], None]
Later = Callable[[float, Callable[[], None]], object]


class OwnPlace:
    """How far this hub has applied the log.

    Invariants: `applied` never goes back. `known` covers every event of this hub that a client was acknowledged. What a hub that is gone knew
    nobody says any more, so the log is read up to its end before anything counts as applied again.
    """

    def __init__(
        self, read_on: OnDone = lambda: None, read_to_end: Callable[[OnDone], object] = lambda on_done: on_done()
    ) -> None:
        """`read_on`: have the log read now; `read_to_end`: and call back when all is applied that is in it now."""
        self._read_on = read_on
        self._read_to_end = read_to_end
        self._unread_ends = 0
        self.applied: Offsets = NOWHERE
        self._written: Offsets = NOWHERE
        self._waiting: list[tuple[Offsets, OnDone]] = []

    def known(self) -> Offsets:
        """Return up to where the log is in force here: others' events that were applied, and own ones."""
        return joined(self.applied, self._written)

    def note_written(self, place: Offsets) -> None:
        """An event of this hub is durable at this place, and in force here."""
        self._written = joined(self._written, place)

    def note_applied(self, place: Offsets) -> None:
        """The log is applied up to here."""
        self.applied = joined(self.applied, place)
        self._call_back()

    def note_gone(self) -> None:
        """A hub is gone that may have known more."""
        self._unread_ends += 1
        self._read_to_end(self._note_end)

    def _note_end(self) -> None:
        self._unread_ends -= 1
        self._call_back()

    def _call_back(self) -> None:
        if self._unread_ends:
            return
        waiting, self._waiting = self._waiting, []
        for wanted, on_done in waiting:
            if covers(self.applied, wanted):
                on_done()
            else:
                self._waiting.append((wanted, on_done))

    def await_applied(self, place: Offsets, on_done: OnDone) -> bool:
        """Call back once the log is applied up to a place, and up to where hubs that are gone have written it. False: it is."""
        if not self._unread_ends and covers(self.applied, place):
            return False
        self._waiting.append((place, on_done))
        self._read_on()
        return True

    def read_on(self) -> None:
        """Have the log read now."""
        self._read_on()


class TenantPeers(Protocol):
    """Which hubs have which tenant open. Fulfilled by `iothub.peers.routes`."""

    def is_open(self, tenant_id: int) -> bool:
        """Tell whether it is open here."""

    def opened_at(self, tenant_id: int) -> list[PeerId]:
        """Return the hubs that have it open."""

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Send a frame that is never dropped, in the order of the calls and behind what was routed before. Nothing, if it is gone."""

    def hold(self, tenant_id: int, *, is_held: bool) -> None:
        """Read no publisher of this tenant, or go on."""


@dataclass(eq=False, slots=True)
class _Change:
    """An event of this hub, and the hubs that publish for the tenant and may not know it yet."""

    tenant_id: int
    place: Offsets
    unanswered: set[PeerId]
    on_done: OnDone


@dataclass(eq=False, slots=True)
class _Question:
    """What another hub wants this one to know."""

    peer: PeerId
    tenant_id: int
    place: Offsets


class PeerPlaces:
    """Fulfils `Receiver` of `PLACE_TYPES`. On the reactor thread.

    Invariants: `_changes` are in the order of their places in each partition, and called back in that order. A question is answered by KNOWN,
    by PAUSED, or by the CLOSE of the tenant here.
    """

    def __init__(
        self,
        own: OwnPlace,
        peers: TenantPeers,
        call_soon: Callable[[OnDone], object],
        later: Later,
        on_peers: OnDone = lambda: None,
    ) -> None:
        """`call_soon`: calls back when the running turn is over; `later`: after some seconds. `on_peers`: a hub has come, or is gone."""
        self._own = own
        self._peers = peers
        self._call_soon = call_soon
        self._later = later
        self._on_peers = on_peers
        self._linked: set[PeerId] = set()
        self._known: dict[PeerId, Offsets] = {}
        self._changes: list[_Change] = []
        self._to_ask: dict[int, Offsets] = {}
        self._questions: list[_Question] = []
        self._is_timed = False
        self._pauses: dict[int, Offsets] = {}  # tenants whose publishers wait until the log is applied up to there

    # --- what the others must know

    def await_known(self, tenant_id: int, place: Offsets, on_done: OnDone) -> bool:
        """Call back once no hub publishes for a tenant without knowing the log up to a place. False: there is none."""
        self._own.note_written(place)
        unanswered = {
            peer for peer in self._peers.opened_at(tenant_id) if not covers(self._known.get(peer, NOWHERE), place)
        }
        if not unanswered:
            return False
        self._changes.append(_Change(tenant_id, place, unanswered, on_done))
        if not self._to_ask:
            self._call_soon(self._ask)
        self._to_ask[tenant_id] = joined(self._to_ask.get(tenant_id, NOWHERE), place)
        return True

    def place_of(self, peer: PeerId) -> Offsets:
        """Return the place up to which a hub had applied the log when it sent what arrives from it now."""
        return self._known.get(peer, NOWHERE)

    def tenant_closed_at(self, peer: PeerId, tenant_id: int) -> None:
        """Another hub has closed a tenant: it publishes nothing of it before it has asked again."""
        self._answered(peer, lambda change: change.tenant_id == tenant_id)

    def _ask(self) -> None:
        """Ask what the changes of this turn need: one KNOW for each tenant and hub."""
        to_ask, self._to_ask = self._to_ask, {}
        for tenant_id, place in to_ask.items():
            body = TenantPlace(tenant_id, place).encode()
            for peer in self._peers.opened_at(tenant_id):
                if not covers(self._known.get(peer, NOWHERE), place):
                    self._peers.announce(peer, FrameType.KNOW, body)

    def _answered(self, peer: PeerId, is_answered: Callable[[_Change], bool]) -> None:
        left: list[_Change] = []
        done: list[_Change] = []
        for change in self._changes:
            if peer in change.unanswered and is_answered(change):
                change.unanswered.discard(peer)
                (left if change.unanswered else done).append(change)
            else:
                left.append(change)
        self._changes = left
        for change in done:
            change.on_done()

    # --- Receiver

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Take a frame of `PLACE_TYPES`. Raises BadFrameError."""
        if frame_type == FrameType.KNOWN:
            place = self._known[peer] = joined(self._known.get(peer, NOWHERE), decode_known(body))
            self._answered(peer, lambda change: covers(place, change.place))
        elif frame_type == FrameType.PAUSED:
            paused = TenantPlace.decode(body)
            self._answered(
                peer,
                lambda change: change.tenant_id == paused.tenant_id and covers(paused.place, change.place),
            )
        elif frame_type == FrameType.KNOW:
            asked = TenantPlace.decode(body)
            self._take_question(_Question(peer, asked.tenant_id, asked.place))
        else:
            raise BadFrameError(f"a frame of type {frame_type.name}")

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`."""
        self._linked.add(peer)
        if self._own.applied != NOWHERE:
            self._peers.announce(peer, FrameType.KNOWN, encode_known(self._own.applied))
        self._on_peers()

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: nobody waits for it, and it waits for nobody. What it was promised stays: its events are in the log."""
        self._linked.discard(peer)
        self._known.pop(peer, None)
        self._questions = [each for each in self._questions if each.peer != peer]
        self._answered(peer, lambda _change: True)
        self._on_peers()

    # --- what this hub must know

    def note_applied(self, place: Offsets) -> None:
        """A page of the log was applied in this turn."""
        applied = joined(self._own.applied, place)
        self._questions = [each for each in self._questions if not covers(applied, each.place)]
        ended = [tenant_id for tenant_id, awaited in self._pauses.items() if covers(applied, awaited)]
        self._pauses = {tenant_id: awaited for tenant_id, awaited in self._pauses.items() if tenant_id not in ended}
        if applied != self._own.applied:
            body = encode_known(applied)
            for peer in self._linked:
                self._peers.announce(peer, FrameType.KNOWN, body)
        for tenant_id in ended:
            self._peers.hold(tenant_id, is_held=False)
        self._own.note_applied(place)

    def tenant_closed(self, tenant_id: int) -> None:
        """A tenant is closed here: that answers every question about it, and it is served again by what it is opened with."""
        self._pauses.pop(tenant_id, None)
        self._questions = [each for each in self._questions if each.tenant_id != tenant_id]

    def _take_question(self, question: _Question) -> None:
        if covers(self._own.applied, question.place):
            self._peers.announce(question.peer, FrameType.KNOWN, encode_known(self._own.applied))
        elif question.tenant_id in self._pauses:
            self._pause(question)
        elif self._peers.is_open(question.tenant_id):  # else the other hub gets the CLOSE, which answers it
            self._questions.append(question)
            self._own.read_on()
            self._time()

    def _time(self) -> None:
        if self._questions and not self._is_timed:
            self._is_timed = True
            waiting = frozenset(self._questions)
            self._later(PATIENCE_S, lambda: self._lose_patience(waiting))

    def _lose_patience(self, waiting: frozenset[_Question]) -> None:
        """Publish nothing for the tenants of questions that have waited for long."""
        self._is_timed = False
        overdue = {each.tenant_id for each in self._questions if each in waiting}
        answered = [each for each in self._questions if each.tenant_id in overdue]
        self._questions = [each for each in self._questions if each.tenant_id not in overdue]
        for question in answered:
            self._pause(question)
        self._time()

    def _pause(self, question: _Question) -> None:
        place = joined(self._pauses.get(question.tenant_id, NOWHERE), question.place)
        self._pauses[question.tenant_id] = place
        self._peers.hold(question.tenant_id, is_held=True)
        self._peers.announce(question.peer, FrameType.PAUSED, TenantPlace(question.tenant_id, place).encode())
