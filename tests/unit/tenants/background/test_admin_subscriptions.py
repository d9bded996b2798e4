"""Subscriptions of a tenant, as an administrator asks for them: in their order, each at the hub that answers for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, NotFoundError
from iothub.engine.limits import ListenerInfo
from iothub.engine.router import Subscription
from iothub.engine.sessions import PackedSession
from iothub.engine.state import Connection, Session, TenantPlane
from iothub.records.admin_commands import Json, Request, Verb, answer_with, place_text
from iothub_services.auth.port import TenantRecord
from iothub_tenants.background import admin_subscriptions
from iothub_tenants.background.admin_subscriptions import AdminSubscriptions


class Hub:
    """Tenant `acme`: `a` and `c` are connected, `b` is away, `t` was transient and ends, `far` is connected to another hub, `none` has nothing."""

    def __init__(self) -> None:
        self.plane = TenantPlane(1, "acme")
        self.plane.interest = object()  # there are other hubs
        self.join("a", "y", "x", "$share/g/s")
        self.join("b", "$share/g/s", is_connected=False)
        self.join("c", "z", "$share/g/s", is_persistent=False)
        self.join("t", "z", is_persistent=False, is_connected=False)
        self.join("far", "z", is_connected=False).control.is_online_elsewhere = True
        self.join("none")
        self.sent: list[Json] = []
        self.caught_up = 0
        brokers = SimpleNamespace(present={1: SimpleNamespace(plane=self.plane)}.get)
        self.verbs = AdminSubscriptions(cast("Any", brokers), self._find, self._catch_up, cast("Any", self._run)).verbs

    def join(self, name: str, *filters: str, is_persistent: bool = True, is_connected: bool = True) -> Session:
        session = self.plane.sessions[name] = Session(self.plane, name, f"dev-{name}", is_persistent)
        session.control = SimpleNamespace(is_online_elsewhere=False)
        if is_connected:
            where: Any = SimpleNamespace()
            session.connection = Connection(where, where, ListenerInfo(), "192.0.2.1:99", None)
        for each in filters:
            group, _, rest = (
                each.removeprefix("$share/").partition("/") if each.startswith("$share/") else ("", "", each)
            )
            session.note(Subscription(session, rest.encode(), group.encode() or None, 1))
        return session

    async def _find(self, name: str) -> TenantRecord | None:
        return {"acme": TenantRecord(1, "acme"), "zeta": TenantRecord(2, "zeta")}.get(name)

    async def _catch_up(self) -> None:
        self.caught_up += 1

    async def _run(self, _name: str, call: Callable[..., object], *arguments: object) -> object:
        return call(*arguments)

    async def rows(self, rows: Sequence[Json]) -> None:
        self.sent += rows

    def ask(self, verb: Verb = Verb.SUBSCRIPTION_LIST, tenant: str = "acme", **argument: object) -> Json:
        self.sent.clear()
        answers: list[Any] = []
        given = {"after": "", "limit": 9, "client_id": "", "group": "", **argument}
        Deferred.fromCoroutine(answer_with(self.verbs, Request(verb, tenant, given), self)).addBoth(answers.append)
        (answer,) = answers
        if hasattr(answer, "raiseException"):
            answer.raiseException()
        return cast("Json", answer)

    def found(self, **argument: object) -> list[str]:
        self.ask(**argument)  # type: ignore[arg-type]
        return [f"{row['client_id']} {row['group']} {row['filter']}" for row in self.sent]


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_subscriptions_are_in_order_and_each_is_one_hubs(hub: Hub) -> None:
    """Not those of a client that another hub has, nor of a transient session that ends."""
    assert hub.found() == ["a  x", "a  y", "a g s", "b g s", "c  z", "c g s"]
    assert hub.sent[0] == {
        "client_id": "a",
        "group": "",
        "filter": "x",
        "qos": 1,
        "no_local": False,
        "is_connected": True,
    }
    assert hub.sent[3]["is_connected"] is False
    assert hub.caught_up == 1


def test_packed_sessions_are_listed_where_their_clients_are_away(hub: Hub) -> None:
    """Of one whose client is connected to another hub that hub answers; of no packed one in a group."""
    for name, is_online in (("p", False), ("q", True)):
        packed = PackedSession("dev1", 1, b"own")
        packed.count, packed.options, packed.is_online = 1, 2, is_online
        hub.plane.sessions.packed[name] = packed

    assert [each for each in hub.found() if each[0] in "pq"] == ["p  own"]
    assert (hub.sent[-1]["qos"], hub.sent[-1]["is_connected"]) == (2, False)
    assert [each for each in hub.found(group="g") if each[0] in "pq"] == []


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_have_every_subscription_once(hub: Hub, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(admin_subscriptions, "ROWS", 2)
    found: list[str] = []
    after = ""
    while page := hub.found(after=after, limit=limit):
        assert len(page) <= limit
        found += page
        after = place_text([str(hub.sent[-1][name]) for name in ("client_id", "group", "filter")])

    assert found == ["a  x", "a  y", "a g s", "b g s", "c  z", "c g s"]


def test_subscriptions_of_one_client_or_one_group(hub: Hub) -> None:
    assert hub.found(client_id="a") == ["a  x", "a  y", "a g s"]
    assert hub.found(group="g") == ["a g s", "b g s", "c g s"]
    assert hub.found(client_id="nobody") == hub.found(group="nobody") == []


def test_groups_have_their_members_here_and_those_that_are_away(hub: Hub) -> None:
    hub.join("d", "$share/g/r", "$share/f/s")

    hub.ask(Verb.GROUP_LIST)
    assert hub.sent == [
        {"group": "f", "filter": "s", "connected": 1, "away": 0},
        {"group": "g", "filter": "r", "connected": 1, "away": 0},
        {"group": "g", "filter": "s", "connected": 2, "away": 1},
    ]
    hub.ask(Verb.GROUP_LIST, after='["g","r"]', limit=1)
    assert [row["filter"] for row in hub.sent] == ["s"]


def test_tenant_without_a_client_has_an_empty_list(hub: Hub) -> None:
    assert hub.found(tenant="zeta") == []


@pytest.mark.parametrize("after", ["a", "[1]", '["a"]', '["a","b","c","d"]', "{}", '["\\ud800","",""]'])
def test_place_that_is_none_is_refused(hub: Hub, after: str) -> None:
    with pytest.raises(ConfigError, match="after: expected"):
        hub.ask(after=after)
    with pytest.raises(NotFoundError):
        hub.ask(tenant="nobody")
