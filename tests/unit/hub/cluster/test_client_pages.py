"""Pages of the connected clients of all hubs: no client is missing and none is there twice, however they are spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.hub.cluster import client_pages
from iothub.hub.cluster.client_pages import ClientPages
from iothub.records.admin_commands import Json, Reply, Request, Verb, answer_with, place_in


def client(name: str, node: int, *, at_ms: int = 0, queued: int = 0) -> Json:
    return {"client_id": name, "node": node, "connected_at_ms": at_ms, "queued": queued, "in_flight": 0}


class Hubs:
    """Three hubs; each answers as `AdminClients` does."""

    def __init__(self, spread: Sequence[str] = ("adg", "", "bcef")) -> None:
        self.clients = [[client(name, node) for name in names] for node, names in enumerate(spread)]
        self.unanswered: list[Json] = []
        self.asked: list[Json] = []
        self.sent: list[Json] = []
        self.pages = ClientPages({Verb.CLIENT_LIST: self._list, Verb.CLIENT_TOP: self._top})

    async def _list(self, request: Request, reply: Reply) -> Json:
        self.asked.append(request.argument)
        for found in self.clients:
            behind = sorted(
                (row for row in found if str(row["client_id"]) > request.text("after")),
                key=lambda row: str(row["client_id"]),
            )
            await reply.rows(behind[: request.number("limit")])
        return {"unanswered": self.unanswered} if self.unanswered else {}

    async def _top(self, request: Request, reply: Reply) -> Json:
        self.asked.append(request.argument)
        for found in self.clients:
            await reply.rows(found)
        return {}

    async def rows(self, rows: Sequence[Json]) -> None:
        self.sent += rows

    def ask(self, verb: Verb = Verb.CLIENT_LIST, **argument: object) -> Json:
        answers: list[Any] = []
        request = Request(verb, "acme", argument)
        Deferred.fromCoroutine(answer_with(self.pages.verbs, request, self)).addBoth(answers.append)
        (answer,) = answers
        if hasattr(answer, "raiseException"):
            answer.raiseException()
        return cast("Json", answer)

    @property
    def names(self) -> str:
        return "".join(str(row["client_id"]) for row in self.sent)


@pytest.mark.parametrize(
    ("after", "limit", "names", "following"),
    [
        ("", 9, "abcdefg", None),
        ("", 7, "abcdefg", None),
        ("", 6, "abcdef", "f"),
        ("c", 2, "de", "e"),
        ("g", 2, "", None),
        ("", 0, "", None),
    ],
)
@pytest.mark.parametrize("page", [1, 2, 500])
def test_page_has_the_first_clients_of_all_hubs(
    monkeypatch: pytest.MonkeyPatch, page: int, after: str, limit: int, names: str, following: str | None
) -> None:
    """However few each hub is asked for at a time."""
    monkeypatch.setattr(client_pages, "PAGE", page)
    hubs = Hubs()

    assert hubs.ask(after=after, limit=limit) == {"next": following}
    assert hubs.names == names


def test_client_that_two_hubs_name_is_where_it_has_come_last() -> None:
    hubs = Hubs(("", "", ""))
    hubs.clients[0].append(client("a", 0, at_ms=2))
    hubs.clients[1].append(client("a", 1, at_ms=1))

    hubs.ask(after="", limit=5)

    assert [(row["client_id"], row["node"]) for row in hubs.sent] == [("a", 0)]


def test_silent_hub_is_named_and_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page ends early, and says where it goes on."""
    monkeypatch.setattr(client_pages, "PAGE", 2)
    hubs = Hubs()
    hubs.unanswered = [{"hub": "b (2)", "reason": "no answer within 2 s"}]

    assert hubs.ask(after="", limit=6) == {"unanswered": hubs.unanswered, "next": "b"}
    assert (hubs.names, len(hubs.asked)) == ("ab", 1)


def test_clients_with_most_waiting_are_those_of_all_hubs() -> None:
    hubs = Hubs(("", "", ""))
    for node, (name, queued) in enumerate([("a", 1), ("b", 3), ("c", 2)]):
        hubs.clients[node].append(client(name, node, queued=queued))

    assert hubs.ask(Verb.CLIENT_TOP, by="queue", limit=2) == {}
    assert hubs.names == "bc"
    assert hubs.asked == [{"by": "queue", "limit": 2}]


def test_list_in_the_order_of_several_texts_goes_on_behind_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disconnected sessions are named by every hub; connected members are each hub's own."""
    monkeypatch.setattr(client_pages, "PAGE", 1)
    rows = [
        {"group": "g", "filter": "a", "connected": 2, "away": 1},
        {"group": "g", "filter": "a", "connected": 1, "away": 1},
        {"group": "g", "filter": "b", "connected": 0, "away": 3},
    ]

    async def answer(request: Request, reply: Reply) -> Json:
        place = place_in(request.text("after"), 2)
        await reply.rows([row for row in rows if (row["group"], row["filter"]) > place])
        return {}

    hubs = Hubs()
    hubs.pages = ClientPages({Verb.GROUP_LIST: answer})

    assert hubs.ask(Verb.GROUP_LIST, after="", limit=1) == {"next": '["g","a"]'}
    assert hubs.sent == [{"group": "g", "filter": "a", "connected": 3, "away": 1}]
    assert hubs.ask(Verb.GROUP_LIST, after='["g","a"]', limit=5) == {"next": None}
    assert hubs.sent[1:] == [rows[2]]


def test_subscription_that_two_hubs_name_is_where_its_client_is() -> None:
    row = {"client_id": "a", "group": "", "filter": "x", "is_connected": False}

    async def answer(_request: Request, reply: Reply) -> Json:
        await reply.rows([row, {**row, "is_connected": True}])
        return {}

    hubs = Hubs()
    hubs.pages = ClientPages({Verb.SUBSCRIPTION_LIST: answer})

    hubs.ask(Verb.SUBSCRIPTION_LIST, after="", limit=5)

    assert hubs.sent == [{**row, "is_connected": True}]
