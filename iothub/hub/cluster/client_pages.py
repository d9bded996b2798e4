"""One list out of those of all hubs: each hub gives its first rows, and the first ones of them all are a page.

Connected clients, subscriptions, shared groups. Knows no client and no link: the rows come from verbs that ask every hub
(`iothub.hub.cluster.every_hub`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs, place_text

PAGE = 500  # rows that one hub is asked for at a time: far less than an answer over a link may have
PIECE = 128  # rows
_COUNTS: Mapping[str, str] = {"queue": "queued", "in-flight": "in_flight"}


class _Order(NamedTuple):
    """The order of a list. `names`: fields of a row, whose texts are its place; `join`: makes one row of two with the same place."""

    names: tuple[str, ...]
    join: Callable[[Json, Json], Json]

    def place(self, row: Json) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.names)

    def after(self, row: Json) -> str:
        """Return what `after` is for the rows behind this one."""
        place = self.place(row)
        return place[0] if len(place) == 1 else place_text(place)

    def joined(self, rows: Sequence[Json]) -> list[Json]:
        found: dict[tuple[str, ...], Json] = {}
        for row in rows:
            place = self.place(row)
            found[place] = self.join(found[place], row) if place in found else row
        return [found[place] for place in sorted(found)]


def _later(one: Json, other: Json) -> Json:
    """Of a client that moves from one hub to another meanwhile, its later connection."""
    return max(one, other, key=lambda row: int(str(row["connected_at_ms"])))


def _members(one: Json, other: Json) -> Json:
    """Each hub has connected members of its own; every one names the members that are connected nowhere."""
    connected = int(str(one["connected"])) + int(str(other["connected"]))
    return {**one, "connected": connected, "away": max(int(str(one["away"])), int(str(other["away"])))}


_CLIENTS = _Order(("client_id",), _later)
_LISTS: Mapping[str, _Order] = {
    Verb.CLIENT_LIST: _CLIENTS,
    Verb.SUBSCRIPTION_LIST: _Order(
        ("client_id", "group", "filter"), lambda one, other: one if one["is_connected"] else other
    ),
    Verb.GROUP_LIST: _Order(("group", "filter"), _members),
}


class ClientPages:
    """On the reactor thread. `verbs`: the lists and `client.top`, for whoever asks at this hub."""

    def __init__(self, every_hub: Verbs) -> None:
        self._every_hub = every_hub
        self.verbs: Verbs = {**dict.fromkeys(_LISTS, self._list), Verb.CLIENT_TOP: self._top}

    async def _list(self, request: Request, reply: Reply) -> Json:
        order, after, left = _LISTS[request.verb], request.text("after"), request.number("limit")
        result: Json = {}
        is_more = left > 0
        while is_more and left and "unanswered" not in result:  # a silent hub is waited for once
            count = min(left, PAGE)
            found, result = await self._ask(request, {**request.argument, "after": after, "limit": count + 1}, order)
            page, is_more = found[:count], len(found) > count
            await _send(page, reply)
            left -= len(page)
            after = order.after(page[-1]) if page else after
        return {**result, "next": after if is_more else None}

    async def _top(self, request: Request, reply: Reply) -> Json:
        limit = min(request.number("limit"), PAGE)
        found, result = await self._ask(request, {**request.argument, "limit": limit}, _CLIENTS)
        count = _COUNTS[request.text("by")]
        await _send(sorted(found, key=lambda row: int(str(row[count])), reverse=True)[:limit], reply)
        return result

    async def _ask(self, request: Request, argument: Json, order: _Order) -> tuple[list[Json], Json]:
        """Return the rows of all hubs in their order, each once."""
        gathered = _Gathered()
        result = await self._every_hub[request.verb](Request(request.verb, request.tenant, argument), gathered)
        return order.joined(gathered.found), result


class _Gathered:
    """Fulfils `Reply`: keeps the rows."""

    def __init__(self) -> None:
        self.found: list[Json] = []

    async def rows(self, rows: Sequence[Json]) -> None:
        self.found += rows


async def _send(rows: Sequence[Json], reply: Reply) -> None:
    for start in range(0, len(rows), PIECE):
        await reply.rows(rows[start : start + PIECE])
