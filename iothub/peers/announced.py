"""What this hub announces to others of the subscriptions of one tenant's clients: which Topic Filters, and who waits until they are known.

Shared subscriptions are announced as clients write them (`$share/GROUP/FILTER`). Knows no link and no frame. Fulfils the engine's `Interest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from iothub.engine.filters import join_share
from iothub.engine.message import Message
from iothub.engine.router import Subscription, Target
from iothub.engine.state import TenantPlane
from iothub.peers.ports import PeerId

NOTHING, QOS0, EVERYTHING = -1, 0, 2
"""What is needed of a Topic Filter; the QoS of the Subscription that stands for it at the other hub."""

_OWN_FIGURES = b"$SYS/"  # each hub publishes its own to its own clients


class Announcement:
    """Topic Filters that become known to other hubs together. `waiting`: who is called back once all of those hubs have applied them.

    `filters`: with what was needed of each before, and the Announcement that brings that if it is on its way, too. `unanswered`: hubs that have not
    applied them; `behind`: hubs of which messages are on their way that are older; None: it was not sent yet.
    """

    def __init__(self) -> None:
        self.filters: dict[bytes, Brought] = {}
        self.waiting: list[Callable[[], None]] = []
        self.unanswered: set[PeerId] | None = None
        self.behind: set[PeerId] | None = None

    @property
    def is_applied(self) -> bool:
        return self.unanswered is not None and not self.unanswered

    def is_known_to(self, peer: PeerId) -> bool:
        return self.behind is not None and peer not in self.behind


Brought: TypeAlias = tuple[int, Announcement | None]


class Announced:
    """The Topic Filters of one tenant, counted, and what of them is on its way. Fulfils the engine's `Routing` while something is.

    Invariants: a needed Topic Filter that is in no Announcement on its way has been applied by every hub that serves publishers of the tenant, and
    what they had routed before has arrived.
    `changed` has what was last announced of each Topic Filter for which something else is true now.
    From a hub, a subscription gets what that hub has routed since it knows it, and nothing older: an older message may have been routed by a Topic
    Filter that was not needed any more, and then the newer ones of its topic were not.
    """

    def __init__(self, tenant: TenantPlane, on_change: Callable[[], None]) -> None:
        self._tenant = tenant
        self._on_change = on_change
        self._sender: PeerId | None = None  # whose messages are being delivered
        self._counts: dict[bytes, int] = {}  # subscriptions: `_ONE` for each that needs everything, 1 for QoS 0
        self.changed: dict[bytes, int] = {}
        self._on_their_way: dict[bytes, Announcement] = {}
        self.next: Announcement | None = None  # is sent at the end of the turn
        for session in tenant.sessions.awake.values():
            if not session.is_persistent or session.connection is not None:
                for subscription in session.subscriptions.values():
                    if _is_announced(subscription):
                        self._add(subscription, 1)

    def replace(self, before: Subscription | None, after: Subscription | None) -> None:
        """Fulfils `Interest`."""
        subscription = after or before
        if subscription is None or not _is_announced(subscription):
            return
        topic_filter = _announced(subscription)
        need = self.need(topic_filter)
        if before is not None:
            self._add(before, -1)
        if after is not None:
            self._add(after, 1)
        now = self.need(topic_filter)
        if now != need:
            self._note_change(topic_filter, need, now)

    def need(self, topic_filter: bytes) -> int:
        """Return NOTHING, QOS0 or EVERYTHING."""
        count = self._counts.get(topic_filter, 0)
        if count >= _ONE:
            return EVERYTHING
        return QOS0 if count else NOTHING

    def filters(self, need: int) -> Iterator[bytes]:
        """Yield the Topic Filters of which this is needed."""
        for topic_filter in self._counts:
            if self.need(topic_filter) == need:
                yield topic_filter

    def take_changes(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """Return what has to be announced: Topic Filters that need everything, those that need QoS 0, those that are not needed any more."""
        everything: list[bytes] = []
        qos0: list[bytes] = []
        removed: list[bytes] = []
        for topic_filter, before in self.changed.items():
            need = self.need(topic_filter)
            if need != before:
                (everything if need == EVERYTHING else qos0 if need == QOS0 else removed).append(topic_filter)
        self.changed = {}
        return everything, qos0, removed

    def on_their_way(self, filters: Iterable[bytes]) -> list[Announcement]:
        """Return the Announcements that bring these Topic Filters and are not applied everywhere, each once."""
        found = (self._on_their_way.get(topic_filter) for topic_filter in filters)
        return list(dict.fromkeys(each for each in found if each is not None and not each.is_applied))

    def forget(self, announcement: Announcement) -> None:
        """Every hub has applied it and nothing older comes, or is gone."""
        for topic_filter in announcement.filters:
            if self._on_their_way.get(topic_filter) is announcement:
                del self._on_their_way[topic_filter]
        announcement.filters.clear()  # one that is on its way may refer to it, and so on: there would be no end
        if not self._on_their_way and self._tenant.routing is self:
            self._tenant.routing = None

    def arriving(self, sender: PeerId) -> None:
        """Messages of a hub are about to be delivered."""
        self._sender = sender

    def routed(self, message: Message, target: Target) -> Target | None:
        """Fulfils `Routing`."""
        need = EVERYTHING if message.qos else QOS0
        known = [each for each in target.subscriptions if self._is_known(each.filter, need)]
        if len(known) == len(target.subscriptions):
            return target
        return Target(tuple(known)) if known else None

    def _is_known(self, topic_filter: bytes, need: int) -> bool:
        """Tell whether the sender routes by a Topic Filter what needs this."""
        announcement = self._on_their_way.get(topic_filter)
        while announcement is not None and self._sender is not None and not announcement.is_known_to(self._sender):
            before, announcement = announcement.filters[topic_filter]
            if before < need:
                return False
        return True

    def _add(self, subscription: Subscription, sign: int) -> None:
        is_everything = not subscription.session.is_persistent or subscription.qos == 0
        topic_filter = _announced(subscription)
        count = self._counts.get(topic_filter, 0) + sign * (_ONE if is_everything else 1)
        if count:
            self._counts[topic_filter] = count
        else:
            self._counts.pop(topic_filter, None)

    def _note_change(self, topic_filter: bytes, before: int, now: int) -> None:
        self.changed.setdefault(topic_filter, before)
        if self.next is None:
            self.next = Announcement()
            self._on_change()
        if now > before and topic_filter not in self.next.filters:
            self.next.filters[topic_filter] = self._brought(topic_filter, self.changed[topic_filter])
            self._on_their_way[topic_filter] = self.next
            self._tenant.routing = self

    def _brought(self, topic_filter: bytes, need: int) -> Brought:
        """Return what is needed of a Topic Filter as last announced, and the Announcement on its way that has brought that."""
        former = self._on_their_way.get(topic_filter)
        if former is None or need == NOTHING:
            return need, None
        earlier = former.filters[topic_filter]
        return (need, earlier[1]) if earlier[0] >= need else (need, former)


_ONE = 1 << 32  # a subscription in the upper half of a count


def _is_announced(subscription: Subscription) -> bool:
    return not subscription.filter.startswith(_OWN_FIGURES)


def _announced(subscription: Subscription) -> bytes:
    return join_share(subscription.group, subscription.filter)
