# cython: annotation_typing=False
"""The receivers of a message: one router per tenant, from a Topic Name to the subscriptions that match it.

Knows no other tenant (there is nothing in it to leak), no policy, no windows and no bytes on a wire. Sessions are
opaque: only their identity counts. Filters and topics were checked (`iothub.engine.filters`) before they come here.

Theory. An exact filter is found in a dictionary, a wildcard filter in a trie; in front is a cache of finished routes:

    topic -> RouteCache -> Route(targets, groups)
               | miss
               +-> exact: {filter: Subscription | Subscribers | str}
               +-> wildcards: Trie of the same

Millions of filters have one subscriber: then the Subscription stands there itself, or the Client Identifier of a session that is packed: whoever
needs the Subscription wakes it (`iothub.engine.sessions`).

A change of an exact filter forgets one topic. A change of a wildcard filter begins a new generation of this router's
cache: all its routes are dropped at once, so that no stale one keeps a session alive; each was paid for when it was put in.

Invariants. A Route, its lists and its Targets never change once they were returned: a delivery in slices may keep
them. A Group is one object for as long as it has members, and its member list is live: a member that left is never chosen.
Subscribers are kept only while there is more than one plain subscription, or a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from iothub.engine.routecache import Entry, RouteCache
from iothub.engine.trie import Trie

_TARGET_BYTES = 200  # one Target with its tuples
_ROUTE_BYTES = 300  # a Route with its two lists and its place in the cache
_POINTER_BYTES = 8
_UNKNOWN = -1  # a group has changed


class Subscription:
    """One Topic Filter of one session, with its options (§3.8.3.1). Immutable: to change an option, subscribe anew."""

    def __init__(
        self,
        session: Any,
        filter: bytes,
        group: bytes | None = None,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        identifier: int = 0,
    ) -> None:
        self.session = session
        self.filter = filter
        self.group = group
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier  # 0: none


class Target:
    """What one session gets of one topic: all its matching subscriptions as one copy. Immutable.

    The highest QoS [MQTT-3.3.4-2]; the Subscription Identifier of each subscription that has one, in the order of
    `subscriptions` [MQTT-3.3.4-3], [MQTT-3.3.4-4]; RETAIN as published if one of them asks for it.
    """

    def __init__(self, subscriptions: tuple[Subscription, ...]) -> None:
        self.subscriptions = subscriptions
        self.qos = 0
        self.retain_as_published = False
        self.has_no_local = False
        self._merge(subscriptions[0])

    def _merge(self, first: Subscription) -> None:
        identifiers: list[int] = []
        for subscription in self.subscriptions:
            if subscription.qos > self.qos:
                self.qos = subscription.qos
            if subscription.retain_as_published:
                self.retain_as_published = True
            if subscription.no_local:
                self.has_no_local = True
            if subscription.identifier:
                identifiers.append(subscription.identifier)
        self.session = first.session
        self.identifiers = tuple(identifiers)


def without_no_local(target: Target) -> Target | None:
    """Return what the publisher itself gets of its own message: the part without No Local, or None [MQTT-3.8.3-3]."""
    if not target.has_no_local:
        return target
    others = tuple([subscription for subscription in target.subscriptions if not subscription.no_local])
    return Target(others) if others else None


class Group:
    """One `$share` group: a name, a filter, and its members as they are now; one of them gets each message (§4.8.2).

    Both belong to the caller that chooses the member: `turn` (round robin), and `full_at`, when all members were congested; -1: another one has come.
    """

    def __init__(self, name: bytes, filter: bytes) -> None:
        self.name = name
        self.filter = filter
        self.turn = 0
        self.full_at = -1
        self.members: list[Subscription] = []
        self.places: dict[Any, int] = {}  # session -> index in members
        self.persistent = _UNKNOWN  # whether a member's session is: 0 or 1
        self.ordered: list[Subscription] | None = None  # see `persistent_members`

    def join(self, subscription: Subscription) -> Subscription | None:
        """Add a member; return the subscription it replaces. O(1)."""
        self.ordered = None
        self.full_at = -1
        place = self.places.get(subscription.session)
        if place is not None:
            replaced = self.members[place]
            self.members[place] = subscription
            return replaced
        self.places[subscription.session] = len(self.members)
        self.members.append(subscription)
        self.persistent = _UNKNOWN
        return None

    def leave(self, session: Any) -> Subscription | None:
        """Remove a member: the last one takes its place. O(1)."""
        place = self.places.pop(session, None)
        if place is None:
            return None
        self.persistent = _UNKNOWN
        self.ordered = None
        removed = self.members[place]
        last = self.members.pop()
        if last is not removed:
            self.members[place] = last
            self.places[last.session] = place
        return removed

    def has_persistent(self) -> bool:
        """Whether a member's session is persistent, so that a message may be stored for it. O(members) after a change, else O(1)."""
        if self.persistent == _UNKNOWN:
            self.persistent = 0
            for member in self.members:
                if member.session.is_persistent:
                    self.persistent = 1
                    break
        return self.persistent > 0

    def persistent_members(self) -> list[Subscription]:
        """Return those whose sessions are persistent by Client Identifier, the same at every hub. O(n log n) after a change, else O(1)."""
        if self.ordered is None:
            persistent = [member for member in self.members if member.session.is_persistent]
            self.ordered = sorted(persistent, key=_client_id)
        return self.ordered


def _client_id(member: Subscription) -> str:
    client_id: str = member.session.client_id
    return client_id


class Route(Entry):
    """All receivers of a topic: one Target per session, and the shared groups. Immutable."""

    def __init__(self, targets: list[Target], groups: list[Group], size: int) -> None:
        self.size = size
        self.targets = targets
        self.groups = groups


class Subscribers:
    """All subscriptions of one Topic Filter, `many` plain ones and those of groups. O(1) to change when there are 100,000.

    Invariant: `targets` lists `many` for the routes, and is None after a change.
    """

    def __init__(self) -> None:
        self.many: dict[Any, Target] = {}
        self.targets: list[Target] | None = None
        self.groups: dict[bytes, Group] | None = None

    def only(self) -> Subscription | None:
        """Return the one plain subscription that there is and nothing else."""
        if self.groups is not None or len(self.many) != 1:
            return None
        return next(iter(self.many.values())).subscriptions[0]

    def is_empty(self) -> bool:
        return not self.many and self.groups is None

    def add(self, subscription: Subscription) -> Subscription | None:
        """Add a plain subscription; return the one of the same session that it replaces."""
        self.targets = None
        before = self.many.get(subscription.session)
        self.many[subscription.session] = Target((subscription,))
        return None if before is None else before.subscriptions[0]

    def remove(self, session: Any) -> Subscription | None:
        """Remove the plain subscription of a session and return it."""
        target = self.many.pop(session, None)
        if target is None:
            return None
        self.targets = None
        return target.subscriptions[0]

    def listed(self) -> list[Target]:
        """Return the targets of the plain subscriptions: one list for all routes, until something changes."""
        if self.targets is None:
            self.targets = list(self.many.values())
        return self.targets

    def subscriptions(self) -> list[Subscription]:
        found: list[Subscription] = [target.subscriptions[0] for target in self.many.values()]
        if self.groups is not None:
            for group in self.groups.values():
                found += group.members
        return found


class Router:
    """One tenant's subscriptions. Not re-entrant: nothing may change it while `filters` is iterated.

    `generation` changes whenever some topic's route may have changed: a route kept elsewhere is good until then. `hub_filters`: how many of the
    Topic Filters begin with "$"; while there are none, nothing that the hub itself publishes has a receiver.
    """

    def __init__(self, cache_entries: int = 8192, cache_bytes: int = 4 << 20) -> None:
        self.subscription_count = 0
        self.group_count = 0
        self.hub_filters = 0
        self.generation = 0
        self.cache = RouteCache(cache_entries, cache_bytes)
        self.exact: dict[bytes, Any] = {}
        self.wildcards = Trie()
        self.wake: Callable[[str], object] | None = None  # puts the Subscriptions of a packed session in place

    def match(self, topic: bytes) -> Route:
        """Return the route of a checked Topic Name: one look-up when cached, else O(levels x branches + receivers)."""
        route: Route | None = self.cache.young.get(topic)
        if route is None:
            route = self.cache.promote(topic)
            if route is None:
                route = self._find(topic)
                self.cache.put(topic, route)
        return route

    def subscribe(self, subscription: Subscription) -> Subscription | None:
        """Add a subscription; return the one it replaces: same session, filter and group [MQTT-3.8.4-3]. O(levels)."""
        filter = subscription.filter
        kept = self._at(filter)
        if subscription.group is not None:
            replaced = self._join(self._subscribers(filter), subscription, subscription.group)
        else:
            if kept is None or (isinstance(kept, Subscription) and kept.session is subscription.session):
                replaced = kept
                self._put(filter, subscription)
            else:
                replaced = self._subscribers(filter).add(subscription)
            self._changed(filter)
        if replaced is None:
            self.subscription_count += 1
        return replaced

    def unsubscribe(self, session: Any, filter: bytes, group: bytes | None) -> Subscription | None:
        """Remove a subscription and return it; None when there was none. O(levels)."""
        kept = self._at(filter)
        if kept is None:
            return None
        if isinstance(kept, Subscription):
            removed = kept if group is None and kept.session is session else None
        else:
            subscribers: Subscribers = kept
            removed = subscribers.remove(session) if group is None else self._leave(subscribers, session, filter, group)
        if removed is None:
            return None
        if group is None:
            self._changed(filter)
        self.subscription_count -= 1
        self._shrink(filter, kept)
        if self.subscription_count == 0:  # gives back what the tables had grown to
            self.exact = {}
            self.cache.clear()
        return removed

    def _shrink(self, filter: bytes, kept: Any) -> None:
        """A subscription has left what is kept of a filter."""
        if isinstance(kept, Subscription):
            self._drop(filter)
        else:
            subscribers: Subscribers = kept
            only = subscribers.only()
            if only is not None:
                self._put(filter, only)
            elif subscribers.is_empty():
                self._drop(filter)

    def filters(self) -> Iterator[Subscription]:
        """Yield every subscription, in no promised order."""
        self._wake_all([*self.exact.values(), *self.wildcards.values()])
        for kept in self.exact.values():
            yield from _subscriptions(kept)
        for kept in self.wildcards.values():
            yield from _subscriptions(kept)

    def is_only(self, subscription: Subscription) -> bool:
        """Whether its Topic Filter has no other subscription."""
        return self._kept(subscription.filter) is subscription

    def place(self, filter: bytes, kept: Any) -> None:
        """Put the Client Identifier of a packed session where its only Subscription is, or the other way round: routes are as before."""
        if _is_wildcard(filter):
            self.wildcards.put(filter, kept)
        else:
            self.exact[filter] = kept

    def _at(self, filter: bytes) -> Any:
        """Return the Subscription or the Subscribers of a filter; None: there are none."""
        kept = self._kept(filter)
        if isinstance(kept, str):
            self._wake_all([kept])
            kept = self._kept(filter)
        return kept

    def _kept(self, filter: bytes) -> Any:
        return self.wildcards.get(filter) if _is_wildcard(filter) else self.exact.get(filter)

    def _wake_all(self, found: list[Any]) -> bool:
        """Wake the packed sessions among these; whether there was one."""
        is_woken = False
        for kept in found:
            if isinstance(kept, str) and self.wake is not None:
                self.wake(kept)
                is_woken = True
        return is_woken

    def _put(self, filter: bytes, kept: Any) -> None:
        if filter.startswith(b"$") and self._at(filter) is None:
            self.hub_filters += 1
        self.place(filter, kept)

    def _subscribers(self, filter: bytes) -> Subscribers:
        """Return the Subscribers of a filter, made if there are none or one subscription."""
        kept = self._at(filter)
        if isinstance(kept, Subscribers):
            return kept
        subscribers = Subscribers()
        if kept is not None:
            subscribers.add(kept)
        self._put(filter, subscribers)
        return subscribers

    def _drop(self, filter: bytes) -> None:
        if filter.startswith(b"$"):
            self.hub_filters -= 1
        if _is_wildcard(filter):
            self.wildcards.remove(filter)
        else:
            del self.exact[filter]

    def _changed(self, filter: bytes) -> None:
        self.generation += 1
        if _is_wildcard(filter):
            self.cache.clear()
        else:
            self.cache.forget(filter)

    def _join(self, subscribers: Subscribers, subscription: Subscription, name: bytes) -> Subscription | None:
        if subscribers.groups is None:
            subscribers.groups = {}
        group = subscribers.groups.get(name)
        if group is None:
            group = Group(name, subscription.filter)
            subscribers.groups[name] = group
            self.group_count += 1
            self._changed(subscription.filter)
        return group.join(subscription)

    def _leave(self, subscribers: Subscribers, session: Any, filter: bytes, name: bytes) -> Subscription | None:
        groups = subscribers.groups
        group = None if groups is None else groups.get(name)
        if groups is None or group is None:
            return None
        removed = group.leave(session)
        if not group.members:
            del groups[name]
            if not groups:
                subscribers.groups = None
            self.group_count -= 1
            self._changed(filter)
        return removed

    def _find(self, topic: bytes) -> Route:
        found = self._matching(topic)
        if self._wake_all(found):
            found = self._matching(topic)
        return _route(found)

    def _matching(self, topic: bytes) -> list[Any]:
        found: list[Any] = []
        exact = self.exact.get(topic)
        if exact is not None:
            found.append(exact)
        self.wildcards.match(topic, found)
        return found


def _is_wildcard(filter: bytes) -> bool:
    return b"+" in filter or b"#" in filter


def _subscriptions(kept: Any) -> list[Subscription]:
    return [kept] if isinstance(kept, Subscription) else kept.subscriptions()


def _route(found: list[Any]) -> Route:
    """Merge what matched into one route. Linear in the receivers."""
    groups: list[Group] = []
    plain: list[list[Target]] = []
    size = _ROUTE_BYTES
    for kept in found:
        if isinstance(kept, Subscription):
            plain.append([Target((kept,))])
            size += _TARGET_BYTES
            continue
        subscribers: Subscribers = kept
        if subscribers.groups is not None:
            groups.extend(subscribers.groups.values())
        if subscribers.many:
            plain.append(subscribers.listed())
    size += _POINTER_BYTES * len(groups)
    if not plain:
        return Route([], groups, size)
    if len(plain) == 1:
        return Route(plain[0], groups, size)
    return _merged(plain, groups, size)


def _merged(plain: list[list[Target]], groups: list[Group], size: int) -> Route:
    """Merge several filters' subscribers: one Target for each session [MQTT-3.3.4-2]."""
    merged: dict[Any, Target] = {}
    overlapping: dict[Any, list[Subscription]] = {}
    for targets in plain:
        for target in targets:
            session = target.session
            before = merged.get(session)
            if before is None:
                merged[session] = target
                continue
            subscriptions = overlapping.get(session)
            if subscriptions is None:
                subscriptions = [before.subscriptions[0]]
                overlapping[session] = subscriptions
            subscriptions.append(target.subscriptions[0])
    for session, subscriptions in overlapping.items():
        merged[session] = Target(tuple(subscriptions))
        size += _TARGET_BYTES + _POINTER_BYTES * len(subscriptions)
    return Route(list(merged.values()), groups, size + _POINTER_BYTES * len(merged))
