"""What an administrator asks about the subscriptions of a tenant: who subscribes to what, and who shares with whom.

Fulfils those verbs of `iothub.records.admin_commands.Verb`, for this hub alone: `iothub.hub.cluster.every_hub` asks the others. Knows no transport.
A hub answers for the clients that are connected to it, and for persistent sessions whose client is connected nowhere: every hub knows those.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Sequence

from iothub.engine.router import Router
from iothub.engine.sessions import PackedSession, Sessions
from iothub.engine.state import Session
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs, no_tenant, place_in
from iothub_services.auth.port import Run, TenantRecord
from iothub_services.sessions.packing import subscriptions_of
from iothub_tenants.broker.brokers import Brokers

ROWS = 256  # in a piece of an answer

_Found = tuple[str, Session | PackedSession]
"""A session by its Client Identifier."""

FindTenant = Callable[[str], Awaitable[TenantRecord | None]]
CatchUp = Callable[[], Awaitable[None]]


class AdminSubscriptions:
    """On the reactor thread."""

    def __init__(self, brokers: Brokers, find_tenant: FindTenant, catch_up: CatchUp, run: Run) -> None:
        """`catch_up`: what other hubs have begun and ended is known here when it returns; raises UnavailableError."""
        self._brokers = brokers
        self._find_tenant = find_tenant
        self._catch_up = catch_up
        self._run = run
        self.verbs: Verbs = {Verb.SUBSCRIPTION_LIST: self._list, Verb.GROUP_LIST: self._list_groups}

    async def _list(self, request: Request, reply: Reply) -> Json:
        after, limit = place_in(request.text("after"), 3), request.number("limit")
        client_id, group = request.text("client_id"), request.text("group")
        known = await self._sessions(request)
        chosen = known.items() if not client_id else [(client_id, known[client_id])] if client_id in known else []
        found = await self._run("housekeeping.subscriptions", _first, chosen, group, after, limit)
        for start in range(0, len(found), ROWS):
            await reply.rows(found[start : start + ROWS])
        return {}

    async def _list_groups(self, request: Request, reply: Reply) -> Json:
        after, limit = place_in(request.text("after"), 2), request.number("limit")
        sessions = list((await self._sessions(request)).awake.values())  # one that is packed is in no group
        found = await self._run("housekeeping.subscriptions", _first_groups, sessions, after, limit)
        for start in range(0, len(found), ROWS):
            await reply.rows(found[start : start + ROWS])
        return {}

    async def _sessions(self, request: Request) -> Sessions:
        """Return the tenant's sessions; a tenant whose broker is not here has none."""
        tenant = await self._find_tenant(request.tenant)
        if tenant is None:
            raise no_tenant(request.tenant)
        await self._catch_up()
        broker = self._brokers.present(tenant.id)
        return Sessions(Router()) if broker is None else broker.plane.sessions


# --- in a thread: a tenant may have a million sessions. `list(mapping)` is one step of Python: nobody changes it meanwhile.


def _first(sessions: Sequence[_Found], group: str, after: tuple[str, ...], count: int) -> list[Json]:
    """Return the first subscriptions behind a place, by client id, group and filter; `group`: only those that share by this name."""
    client_id = after[0] if after else ""
    shown = (each for each in sessions if each[0] >= client_id and _is_shown(each[1], group))
    found: list[Json] = []
    for name, session in heapq.nsmallest(count + 1, shown, key=lambda each: each[0]):  # each has one, but for the first
        found += _rows(name, session, group, after)
        if len(found) >= count:
            break
    return found[:count]


def _is_shown(session: Session | PackedSession, group: str) -> bool:
    if isinstance(session, PackedSession):
        return not group and session.count > 0 and not session.is_online
    if not _is_here(session):
        return False
    return any(not group or _text(each) == group for each, _ in list(session.subscriptions))


def _is_here(session: Session) -> bool:
    """Whether this hub answers for it."""
    connection = session.connection
    if session.is_sink or session.is_discarded:
        return False
    if connection is not None:
        return not connection.is_closing or session.is_persistent
    return session.is_persistent and not session.is_online_elsewhere()


def _rows(client_id: str, session: Session | PackedSession, group: str, after: tuple[str, ...]) -> list[Json]:
    subscriptions = subscriptions_of(session) if isinstance(session, PackedSession) else session.subscriptions.values()
    rows: list[Json] = [
        {
            "client_id": client_id,
            "group": _text(subscription.group),
            "filter": _text(subscription.filter),
            "qos": subscription.qos,
            "no_local": subscription.no_local,
            "is_connected": not isinstance(session, PackedSession) and session.connection is not None,
        }
        for subscription in list(subscriptions)
    ]
    return sorted((row for row in rows if _place(row) > after and group in ("", row["group"])), key=_place)


def _place(row: Json) -> tuple[str, ...]:
    return str(row["client_id"]), str(row["group"]), str(row["filter"])


def _first_groups(sessions: Sequence[Session], after: tuple[str, ...], count: int) -> list[Json]:
    """Return the first groups behind a place, by name and filter, with their members that this hub answers for."""
    members: dict[tuple[str, ...], list[int]] = {}
    for session in sessions:
        if _is_here(session):
            for group, topic_filter in list(session.subscriptions):
                if group is not None:
                    place = _text(group), _text(topic_filter)
                    members.setdefault(place, [0, 0])[session.connection is None] += 1
    first = heapq.nsmallest(count, (place for place in members if place > after))
    return [
        {"group": place[0], "filter": place[1], "connected": members[place][0], "away": members[place][1]}
        for place in first
    ]


def _text(octets: bytes | None) -> str:
    return "" if octets is None else octets.decode(errors="replace")
