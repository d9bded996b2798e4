"""One list of connected clients out of those of all hubs: each hub gives its first ones, and the first ones of them all are a page.

Knows no client and no link: the rows come from verbs that ask every hub (`iothub.hub.every_hub`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs

PAGE = 500  # clients that one hub is asked for at a time: far less than an answer over a link may have
PIECE = 128  # rows
_COUNTS: Mapping[str, str] = {"queue": "queued", "in-flight": "in_flight"}


class ClientPages:
    """On the reactor thread. `verbs`: `client.list` and `client.top`, for whoever asks at this hub."""

    def __init__(self, every_hub: Verbs) -> None:
        self._every_hub = every_hub
        self.verbs: Verbs = {Verb.CLIENT_LIST: self._list, Verb.CLIENT_TOP: self._top}

    async def _list(self, request: Request, reply: Reply) -> Json:
        after, left = request.text("after"), request.number("limit")
        result: Json = {}
        is_more = left > 0
        while is_more and left and "unanswered" not in result:  # a silent hub is waited for once
            count = min(left, PAGE)
            found, result = await self._ask(request, {"after": after, "limit": count + 1})
            clients = sorted(found, key=lambda row: str(row["client_id"]))
            page, is_more = clients[:count], len(clients) > count
            await _send(page, reply)
            left -= len(page)
            after = str(page[-1]["client_id"]) if page else after
        return {**result, "next": after if is_more else None}

    async def _top(self, request: Request, reply: Reply) -> Json:
        limit = min(request.number("limit"), PAGE)
        found, result = await self._ask(request, {**request.argument, "limit": limit})
        count = _COUNTS[request.text("by")]
        await _send(sorted(found, key=lambda row: int(str(row[count])), reverse=True)[:limit], reply)
        return result

    async def _ask(self, request: Request, argument: Json) -> tuple[list[Json], Json]:
        """Return the rows of all hubs: of a client that moves from one to another meanwhile, its later connection."""
        gathered = _Gathered()
        result = await self._every_hub[request.verb](Request(request.verb, request.tenant, argument), gathered)
        by_age = sorted(gathered.found, key=lambda row: int(str(row["connected_at_ms"])))
        return list({row["client_id"]: row for row in by_age}.values()), result


class _Gathered:
    """Fulfils `Reply`: keeps the rows."""

    def __init__(self) -> None:
        self.found: list[Json] = []

    async def rows(self, rows: Sequence[Json]) -> None:
        self.found += rows


async def _send(rows: Sequence[Json], reply: Reply) -> None:
    for start in range(0, len(rows), PIECE):
        await reply.rows(rows[start : start + PIECE])
