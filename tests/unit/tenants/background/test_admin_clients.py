"""Connected clients, as an administrator asks for them: those of one tenant, in order, as they are now; and the one that is put out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, IotHubError, NotFoundError, UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.limits import ListenerInfo
from iothub.engine.message import Delivery, Message
from iothub.engine.router import Subscription
from iothub.engine.state import Connection, Session, TenantPlane
from iothub.records.admin_commands import Json, Request, Verb, answer_with
from iothub_services.auth.port import TenantRecord
from iothub_services.sessions.port import SessionControl
from iothub_tenants.background import admin_clients
from iothub_tenants.background.admin_clients import AdminClients
from iothub_tenants.broker.client_contexts import ClientContext

NOON_MS = 1_800_000_000_000


class Hub:
    """Tenant `acme` with the connected clients `a` to `d`, `kept`, whose client is away, and `leaving`. Tenant `zeta` with nobody."""

    def __init__(self) -> None:
        self.plane = TenantPlane(1, "acme")
        for name in "dbac":
            self.join(name)
        self.join("kept").connection = None
        self.leaving = self.join("leaving")
        self.leaving.connection.is_closing = True  # type: ignore[union-attr]
        self.done: list[object] = []
        self.is_cut_off = False
        self.sent: list[Json] = []
        broker = SimpleNamespace(plane=self.plane)
        self.clients = AdminClients(
            brokers=cast("Any", SimpleNamespace(present={1: broker}.get)),
            plane=cast("Any", SimpleNamespace(close=lambda connection, reason: self.done.append((connection, reason)))),
            find_tenant=self._find,
            apply_changes=self._apply_changes,
            run=cast("Any", self._run),
            node=5,
        )

    def join(self, name: str, *, is_persistent: bool = True) -> Session:
        session = self.plane.sessions[name] = Session(self.plane, name, f"dev-{name}", is_persistent)
        session.control = SessionControl(5, 3600, None)
        where: Any = SimpleNamespace()
        connection = session.connection = Connection(where, where, ListenerInfo(), "192.0.2.1:99", None)
        connection.version, connection.keep_alive_s = 5, 60
        connection.control = ClientContext()
        session.connected_at_ms = NOON_MS
        return session

    async def _find(self, name: str) -> TenantRecord | None:
        return {"acme": TenantRecord(1, "acme"), "zeta": TenantRecord(2, "zeta")}.get(name)

    async def _apply_changes(self) -> None:
        if self.is_cut_off:
            raise UnavailableError("the accounts do not answer")
        self.done.append("changes applied")

    async def _run(self, _name: str, call: Callable[..., object], *arguments: object) -> object:
        return call(*arguments)

    async def rows(self, rows: Sequence[Json]) -> None:
        self.sent += rows

    def ask(self, verb: str, tenant: str = "acme", **argument: object) -> Json:
        """Return the result; the rows are in `sent`. Raises the refusal."""
        self.sent.clear()
        answers: list[Any] = []
        request = Request(verb, tenant, argument)
        Deferred.fromCoroutine(answer_with(self.clients.verbs, request, self)).addBoth(answers.append)
        (answer,) = answers
        if hasattr(answer, "raiseException"):
            answer.raiseException()
        return cast("Json", answer)

    def names(self, verb: str, tenant: str = "acme", **argument: object) -> list[object]:
        self.ask(verb, tenant, **argument)
        return [row["client_id"] for row in self.sent]


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.mark.parametrize(
    ("after", "limit", "found"),
    [("", 9, ["a", "b", "c", "d"]), ("", 2, ["a", "b"]), ("b", 9, ["c", "d"]), ("bb", 1, ["c"]), ("d", 9, [])],
)
def test_connected_clients_are_listed_by_client_id(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, after: str, limit: int, found: list[str]
) -> None:
    """Neither whose client is away, nor whose connection ends."""
    monkeypatch.setattr(admin_clients, "CLIENTS", 3)

    assert hub.names(Verb.CLIENT_LIST, after=after, limit=limit) == found


def test_tenant_without_a_client_has_an_empty_list(hub: Hub) -> None:
    assert hub.names(Verb.CLIENT_LIST, "zeta", after="", limit=9) == []


def test_client_is_described_by_what_the_engine_has_anyway(hub: Hub) -> None:
    assert hub.ask(Verb.CLIENT_SHOW, client_id="a") == {
        "client_id": "a",
        "device": "dev-a",
        "address": "192.0.2.1:99",
        "listener": "tcp",
        "protocol_version": 5,
        "connected_at_ms": NOON_MS,
        "keep_alive_s": 60,
        "is_persistent": True,
        "session_expiry_s": 3600,
        "subscriptions": 0,
        "queued": 0,
        "in_flight": 0,
        "unsent_bytes": 0,
        "node": 5,
    }


def test_client_is_shown_with_its_subscriptions(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_clients, "SUBSCRIPTIONS", 1)
    session = hub.plane.sessions["a"]
    session.note(Subscription(session, b"rooms/#", None, 1))
    session.note(Subscription(session, b"work", b"g", 2))

    assert hub.ask(Verb.CLIENT_SHOW, client_id="a")["subscriptions"] == 2
    assert hub.sent == [
        {"group": None, "filter": "rooms/#", "qos": 1, "no_local": False},
        {"group": "g", "filter": "work", "qos": 2, "no_local": False},
    ]


def wait_for(session: Session, *, announced: int, sent: int) -> None:
    """Messages up to `announced` are in its queue, the first `sent` of them on their way."""
    session.receive_maximum = 20
    session.announced = announced
    for _ in range(sent):
        session.open_window().send(1)


def test_clients_with_most_waiting_come_first(hub: Hub) -> None:
    """Those with nothing are left out."""
    wait_for(hub.plane.sessions["b"], announced=7, sent=2)
    wait_for(hub.plane.sessions["c"], announced=4, sent=3)
    transient = hub.join("t", is_persistent=False)
    for _ in range(3):
        transient.push(Delivery(Message(b"a", b"", 0, False), 0, False, ()))

    assert hub.names(Verb.CLIENT_TOP, by="queue", limit=9) == ["b", "t", "c"]
    assert [row["queued"] for row in hub.sent] == [5, 3, 1]
    assert hub.names(Verb.CLIENT_TOP, by="in-flight", limit=9) == ["c", "b"]
    assert hub.names(Verb.CLIENT_TOP, by="queue", limit=1) == ["b"]


def test_client_is_put_out_when_earlier_changes_are_applied(hub: Hub) -> None:
    """Or one that was banned just before might come again."""
    connection = hub.plane.sessions["a"].connection

    assert hub.ask(Verb.CLIENT_KICK, client_id="a")["address"] == "192.0.2.1:99"

    assert hub.done == ["changes applied", (connection, Reason.ADMINISTRATIVE)]


def test_nobody_is_put_out_while_earlier_changes_are_unknown(hub: Hub) -> None:
    hub.is_cut_off = True

    with pytest.raises(UnavailableError):
        hub.ask(Verb.CLIENT_KICK, client_id="a")

    assert hub.done == []


@pytest.mark.parametrize("verb", [Verb.CLIENT_SHOW, Verb.CLIENT_KICK])
def test_client_that_is_away_is_told_from_one_that_is_unknown(hub: Hub, verb: Verb) -> None:
    with pytest.raises(NotFoundError, match=r"`iothub client list acme` shows them; its session is kept: .* acme kept"):
        hub.ask(verb, client_id="kept")
    with pytest.raises(NotFoundError, match=r"no connected client 'nobody'; `iothub client list acme` shows them$"):
        hub.ask(verb, client_id="nobody")


@pytest.mark.parametrize(
    ("verb", "tenant", "argument", "error"),
    [
        (Verb.CLIENT_LIST, "nobody", {"after": "", "limit": 1}, NotFoundError),
        (Verb.CLIENT_LIST, "acme", {"after": 7, "limit": 1}, ConfigError),
        (Verb.CLIENT_LIST, "acme", {"after": "", "limit": -1}, ConfigError),
        (Verb.CLIENT_TOP, "acme", {"by": "age", "limit": 1}, ConfigError),
        (Verb.CLIENT_SHOW, "zeta", {"client_id": "a"}, NotFoundError),
        (Verb.CLIENT_SHOW, "acme", {"client_id": "leaving"}, NotFoundError),
        (Verb.CLIENT_KICK, "acme", {}, ConfigError),
        (Verb.CLIENT_KICK, "nobody", {"client_id": "a"}, NotFoundError),
    ],
)
def test_request_that_cannot_be_answered_is_refused(
    hub: Hub, verb: str, tenant: str, argument: dict[str, object], error: type[IotHubError]
) -> None:
    with pytest.raises(error):
        hub.ask(verb, tenant, **argument)
