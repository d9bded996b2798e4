"""What hubs know of a persistent session's subscriptions while they change: which of its messages come through its queue, and which directly.

Knows no log and no frame: whoever changes a subscription says where that is in the log, and a link says how far its other side has applied it.

The hub where a message is published decides by its own view of the log: with an effective QoS above 0 it writes to the queue, else the hub that has
the client delivers. So that hub decides by the same view:

    a SUBSCRIBE, before it is in the log -> the Topic Filter is announced for all that the former and the new options need -> it is applied -> the
        log has it -> new options here -> KNOWN from all -> only what the new options need is announced

Invariant: from before a change is in the log until every hub knows it, a message from a hub is delivered by the options of the place up to which
that hub had applied the log when it sent the message. Which that is says its last KNOWN: it leaves with each page that is applied.
Another hub gets the session's client only when no change of it is under way: that hub knows of none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from iothub.base.reasons import Drop
from iothub.engine.filters import join_share, topic_matches
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.router import Subscription, Target, without_no_local
from iothub.engine.state import Session, TenantPlane
from iothub.peers.places import NOWHERE, Offsets, covers
from iothub.peers.ports import PeerId

_MOST_UNCLEAR = 1_000  # messages that wait for the place of one change
_UNCLEAR_BYTES = 1 << 20  # of them: from here on no more wait

Pair = tuple[Subscription | None, Subscription | None]
"""A subscription before and after a change; None: there was none, or is none any more."""


class Change:
    """Changes of one session that are in the log together.

    `place`: None: not durable yet. `began`: how far the others had applied the log before that. `held`: what is announced beside the
    subscriptions. `unclear`: messages of hubs that may have applied it already.
    """

    def __init__(self, session: Session, pairs: list[Pair], began: Mapping[PeerId, Offsets]) -> None:
        self.session = session
        self.pairs = pairs
        self.began = began
        self.place: Offsets | None = None
        self.held = [held for pair in pairs if (held := _held(*pair)) is not None]
        self.unclear: list[tuple[Message, PeerId, Offsets]] = []
        self.unclear_bytes = 0

    def filters(self) -> list[bytes]:
        """Return the Topic Filters that must be announced before the log has the change."""
        return [join_share(None, each.filter) for each in self.held]

    def undo(self, options: dict[bytes, Subscription], topic: bytes) -> None:
        """Put what was before into the options that match a topic."""
        for before, after in self.pairs:
            changed = before or after
            if changed is not None and topic_matches(changed.filter, topic):
                options.pop(changed.filter, None)
                if before is not None:
                    options[changed.filter] = before


def _held(before: Subscription | None, after: Subscription | None) -> Subscription | None:
    """What has to be announced while one of them is in force: with QoS 0 everything comes over the links."""
    if before is None or after is None or (before.qos == 0) == (after.qos == 0):
        return None
    return Subscription(before.session, before.filter, None, 0)


class TenantOptions:
    """One tenant; fulfils the engine's `Changing` while there are changes."""

    def __init__(self, tenant: TenantPlane, plane: Plane) -> None:
        self._tenant = tenant
        self._plane = plane
        self._changes: list[Change] = []  # oldest first
        self._waiting: list[tuple[Session, Callable[[], None]]] = []  # until a session changes no more
        self._peer = PeerId(0, 0)  # whose messages are being delivered
        self._place: Offsets = NOWHERE

    def begin(self, change: Change) -> None:
        """A change will be in the log."""
        self._changes.append(change)
        self._tenant.changing = self
        self._announce(change, is_held=True)

    def note_durable(self, change: Change, place: Offsets) -> None:
        """A change is in the log, and in force here from now on."""
        change.place = place
        self._deliver_unclear(change)

    def end(self, change: Change) -> None:
        """Every hub knows it, or it has not happened."""
        if change in self._changes:
            self._changes.remove(change)
            if not self._changes:
                self._tenant.changing = None
            self._announce(change, is_held=False)
            self._deliver_unclear(change)
            waiting, self._waiting = self._waiting, []
            for session, on_done in waiting:
                if not self.await_changes(session, on_done):
                    on_done()

    def await_changes(self, session: Session, on_done: Callable[[], None]) -> bool:
        """Call back once no change of a session is under way. False: none is."""
        is_changing = any(change.session is session for change in self._changes)
        if is_changing:
            self._waiting.append((session, on_done))
        return is_changing

    def held(self) -> Iterable[Subscription]:
        """Yield what is announced beside the subscriptions."""
        for change in self._changes:
            yield from change.held

    def _announce(self, change: Change, *, is_held: bool) -> None:
        interest = self._tenant.interest
        if interest is not None:
            for held in change.held:
                interest.replace(*((None, held) if is_held else (held, None)))

    # --- messages of other hubs

    def arriving(self, peer: PeerId, place: Offsets) -> None:
        """Messages of a hub are about to be delivered, which it has routed by the log up to a place."""
        self._peer, self._place = peer, place

    def as_of(self, message: Message, target: Target) -> Target | None:
        """Fulfils `Changing`."""
        session: Session = target.session
        options: dict[bytes, Subscription] | None = None
        for change in reversed(self._changes):
            if change.session is not session or (change.place is not None and covers(self._place, change.place)):
                continue
            if change.place is None and self._place != change.began.get(self._peer, NOWHERE):
                self._wait(change, message)
                return None
            if options is None:
                options = {each.filter: each for each in target.subscriptions}
            change.undo(options, message.topic)
        if options is None:
            return target
        return Target(tuple(options.values())) if options else None

    def _wait(self, change: Change, message: Message) -> None:
        if len(change.unclear) < _MOST_UNCLEAR and change.unclear_bytes < _UNCLEAR_BYTES:
            change.unclear.append((message, self._peer, self._place))
            change.unclear_bytes += message.size
        else:
            self._plane.turn.drop(self._tenant, change.session, Drop.QOS0_SLOW, 1)

    def _deliver_unclear(self, change: Change) -> None:
        """Its place is known now, or there is none."""
        unclear, change.unclear, change.unclear_bytes = change.unclear, [], 0
        for message, peer, place in unclear:
            self.arriving(peer, place)
            for target in self._tenant.router.match(message.topic).targets:
                if target.session is change.session:
                    self._deliver(message, target)

    def _deliver(self, message: Message, target: Target) -> None:
        found = self.as_of(message, target)
        if found is not None and target.session is message.publisher:
            found = without_no_local(found)
        if found is not None and not found.qos:
            retain = message.retain and found.retain_as_published
            self._plane.outbound.deliver(target.session, message, 0, retain, found.identifiers, None)


class OptionChange:
    """What the tenants' package has of a change: fulfils `iothub_tenants.broker.peer_routes.OptionChange`."""

    def __init__(
        self, options: TenantOptions, change: Change, await_routed: Callable[[Callable[[], None]], bool]
    ) -> None:
        self._options = options
        self._change = change
        self.await_routed = await_routed

    def note_durable(self, place: Offsets) -> None:
        self._options.note_durable(self._change, place)

    def end(self) -> None:
        self._options.end(self._change)
