"""What an administrator reads in a running hub: whole pages in order, no tenant's but the one that is named, and refusals in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, IotHubError, NotFoundError, UnavailableError
from iothub.records import events
from iothub.records.admin_commands import Json, Request, Verb, answer_with, messages_in
from iothub.records.events import Subject
from iothub.records.state import SessionState, fold
from iothub_services.auth.port import TenantRecord
from iothub_services.connections.rejected import NO_TENANT, Client, Rejected, RejectedConnects
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import Append, Delivery, QueueLimits, StaleEpochError
from iothub_services.retained.memory import MemoryRetained
from iothub_services.retained.port import RetainedTopic, RetainedWrite
from iothub_tenants.background import admin_queries
from iothub_tenants.background.admin_queries import AdminQueries

NOON_MS = 1_800_000_000_000


def born(client_id: str, queue_id: int) -> SessionState:
    subject = Subject(1, client_id, queue_id << 24, NOON_MS)
    state = None
    for offset, event in enumerate(
        [
            events.session_created(
                subject, device="dev1", queue_id=queue_id, protocol_version=5, session_expiry_s=3600
            ),
            events.session_subscribed(
                subject,
                topic_filter="a/#",
                group="g",
                qos=1,
                no_local=True,
                retain_as_published=False,
                retain_handling=0,
                identifier=0,
            ),
            events.will_set(subject, topic="w", payload=b"x", qos=1, retain=False, properties=b"", delay_s=0),
            events.session_disconnected(subject, reason="client"),
        ]
    ):
        state = fold(state, event, offset)
    assert state is not None
    return state


class Awaited:
    """The verbs of a store in memory, awaitable."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: object) -> object:
            return getattr(self._store, name)(*arguments)

        return call


class Hub:
    """Tenant `acme` with persistent sessions `a` to `d` (queues 1 to 4) and a transient one; `c` has no queue. Tenant `zeta` with nothing."""

    def __init__(self) -> None:
        self.states = {name: born(name, number) for number, name in enumerate("abcd", 1)}
        self.queues, self.retained = MemoryQueues(), MemoryRetained()
        for number in (1, 2, 4):
            self.queues.create(1, number, QueueLimits(), number << 24)
        for number, body in enumerate((b"one", b"two" * 100_000, b"three"), 1):
            self.queues.append([Append(bytes([number]) * 16, body, 0, (Delivery(1, 1),))])
        sessions = {
            name: SimpleNamespace(
                client_id=name,
                is_persistent=name != "t",
                queue_id=0 if name == "t" else self.states[name].queue_id,
                tenant=SimpleNamespace(tenant_id=1),
            )
            for name in "tdbac"
        }
        self.asked: list[int] = []  # how many states at once
        broker = SimpleNamespace(plane=SimpleNamespace(sessions=sessions))
        retained = cast("Any", Awaited(self.retained))
        retained.page = self._page
        self.rejected = RejectedConnects()
        self.queries = AdminQueries(
            find_tenant=self._find,
            brokers=cast("Any", SimpleNamespace(present={1: broker}.get)),
            queues=cast("Any", Awaited(self.queues)),
            retained=retained,
            catch_up=self._catch_up,
            states_of=self._states_of,
            driver_of=lambda queue_id: f"driver {queue_id}",
            rejected=self.rejected,
            run=cast("Any", self._run),
        )
        self.sent: list[Json] = []
        self.is_cut_off = False

    async def _catch_up(self) -> None:
        if self.is_cut_off:
            raise UnavailableError("the session log could not be followed in time")

    async def _page(self, tenant_id: int, after: bytes, count: int) -> list[RetainedTopic]:
        return list(self.retained.load(tenant_id, after))[:count]

    async def _find(self, name: str) -> TenantRecord | None:
        return {"acme": TenantRecord(1, "acme"), "zeta": TenantRecord(2, "zeta")}.get(name)

    async def _states_of(self, keys: Sequence[tuple[int, str]]) -> list[SessionState]:
        self.asked.append(len(keys))
        return [self.states[name] for tenant_id, name in keys if tenant_id == 1 and name in self.states]

    async def _run(self, _name: str, call: Callable[..., object], *arguments: object) -> object:
        return call(*arguments)

    async def rows(self, rows: Sequence[Json]) -> None:
        self.sent += rows

    def ask(self, verb: str, tenant: str = "acme", **argument: object) -> Json:
        """Return the result; the rows are in `sent`. Raises the refusal."""
        self.sent.clear()
        answers: list[Any] = []
        Deferred.fromCoroutine(answer_with(self.queries.verbs, Request(verb, tenant, argument), self)).addBoth(
            answers.append
        )
        (answer,) = answers
        if hasattr(answer, "raiseException"):
            answer.raiseException()
        return cast("Json", answer)

    def names(self, verb: str, name: str, **argument: object) -> tuple[list[object], object]:
        result = self.ask(verb, **argument)
        return [row[name] for row in self.sent], result["next"]


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_sessions_are_listed_in_order_page_by_page(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their states are read some at a time."""
    monkeypatch.setattr(admin_queries, "SESSIONS", 2)

    assert hub.names(Verb.SESSION_LIST, "client_id", after="", limit=3) == (["a", "b", "c"], "c")
    assert hub.asked == [2, 1]
    assert hub.names(Verb.SESSION_LIST, "client_id", after="c", limit=3) == (["d"], None)
    assert hub.names(Verb.SESSION_LIST, "client_id", after="", limit=4) == (["a", "b", "c", "d"], None)


@pytest.mark.parametrize("verb", [Verb.SESSION_LIST, Verb.QUEUE_LIST])
def test_queues_of_a_list_are_read_some_at_a_time(hub: Hub, monkeypatch: pytest.MonkeyPatch, verb: Verb) -> None:
    """And their rows are sent before the next ones are read: whoever asked sees that it goes on."""
    monkeypatch.setattr(admin_queries, "SESSIONS", 2)
    asked: list[tuple[list[int], int]] = []
    stats_of = hub.queues.stats_of

    def counting(queue_ids: list[int]) -> Any:
        asked.append((queue_ids, len(hub.sent)))
        return stats_of(queue_ids)

    monkeypatch.setattr(hub.queues, "stats_of", counting)

    hub.ask(verb, after="", limit=9)

    assert asked == [([1, 2], 0), ([3, 4], 2)]


def test_session_that_has_ended_meanwhile_is_left_out(hub: Hub) -> None:
    del hub.states["b"]

    assert hub.names(Verb.SESSION_LIST, "client_id", after="", limit=2) == (["a"], "b")


def test_session_is_listed_with_its_queue(hub: Hub) -> None:
    hub.ask(Verb.SESSION_LIST, after="", limit=9)

    queues = {str(row["client_id"]): cast("Any", row["queue"]) for row in hub.sent}
    assert queues["c"] is None
    assert (queues["a"]["messages"], queues["a"]["driver"]) == (3, "driver 1")
    assert queues["a"]["limits"] == {"messages": 100_000, "bytes": 64 << 20, "overflow": "drop-qos0-first"}


def test_session_is_shown_with_its_subscriptions(hub: Hub) -> None:
    shown = hub.ask(Verb.SESSION_SHOW, client_id="a")

    assert hub.sent == [{"group": "g", "filter": "a/#", "qos": 1, "no_local": True}]
    assert (shown["device"], shown["protocol_version"], shown["session_expiry_s"]) == ("dev1", 5, 3600)
    assert (shown["is_connected"], shown["disconnect_reason"], shown["disconnected_at_ms"]) == (
        False,
        "client",
        NOON_MS,
    )
    assert (shown["will"], shown["node"], shown["subscriptions"]) == ({"topic": "w", "qos": 1}, None, 1)


def test_queues_are_listed_without_sessions_that_have_none(hub: Hub) -> None:
    assert hub.names(Verb.QUEUE_LIST, "client_id", after="", limit=3) == (["a", "b"], "c")
    assert hub.names(Verb.QUEUE_LIST, "queue_id", after="c", limit=3) == ([4], None)


def test_queue_is_shown_with_its_oldest_messages(hub: Hub) -> None:
    """A long one in pieces."""
    shown = hub.ask(Verb.QUEUE_SHOW, client_id="a", messages=2)

    assert (shown["messages"], shown["queue_id"]) == (3, 1)
    assert len(hub.sent) > 2
    assert [(facts["position"], body) for facts, body in messages_in(hub.sent)] == [(1, b"one"), (2, b"two" * 100_000)]
    hub.ask(Verb.QUEUE_SHOW, client_id="a", messages=0)
    assert hub.sent == []


def test_queue_that_is_taken_over_meanwhile_is_asked_for_again(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StaleEpochError

    monkeypatch.setattr(hub.queues, "read", fail)

    with pytest.raises(UnavailableError, match="try again"):
        hub.ask(Verb.QUEUE_SHOW, client_id="a", messages=1)


@pytest.fixture
def kept(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Five retained messages of acme, read two at a time; one of zeta."""
    monkeypatch.setattr(admin_queries, "TOPICS", 2)
    topics = (b"$SYS/x", b"a/1", b"a/2", b"a/b/c", b"b")
    hub.retained.put([RetainedWrite(1, topic, b"body", 9) for topic in topics])
    hub.retained.put([RetainedWrite(2, b"a/1", b"other")])
    return hub


@pytest.mark.parametrize(
    ("topic_filter", "after", "limit", "found"),
    [
        ("#", "", 9, (["$SYS/x", "a/1", "a/2", "a/b/c", "b"], None)),
        ("#", "a/2", 9, (["a/b/c", "b"], None)),
        ("a/+", "", 9, (["a/1", "a/2"], None)),
        ("a/#", "", 2, (["a/1", "a/2"], "a/2")),
        ("a/#", "", 3, (["a/1", "a/2", "a/b/c"], None)),
        ("a/#", "a/2", 1, (["a/b/c"], None)),
        ("+", "", 1, (["b"], None)),
        ("none", "", 1, ([], None)),
    ],
)
def test_topics_are_listed_in_order_page_by_page(
    kept: Hub, topic_filter: str, after: str, limit: int, found: tuple[list[str], str | None]
) -> None:
    """`#` alone shows those that begin with $, too."""
    assert kept.names(Verb.RETAIN_LIST, "name", filter=topic_filter, after=after, limit=limit) == found


def test_topic_is_listed_with_what_the_store_knows(kept: Hub) -> None:
    kept.ask(Verb.RETAIN_LIST, filter="b", after="", limit=1)

    assert kept.sent == [{"name": "b", "bytes": 4, "version": 5, "expires_at_ms": 9}]


def test_topics_are_counted_as_they_would_be_deleted(kept: Hub) -> None:
    """`#` leaves out those that begin with $ [MQTT-4.7.2-1]."""
    assert kept.ask(Verb.RETAIN_COUNT, filter="#") == {"messages": 4}
    assert kept.ask(Verb.RETAIN_COUNT, filter="a/+") == {"messages": 2}
    assert kept.ask(Verb.RETAIN_COUNT, "zeta", filter="#") == {"messages": 1}


def test_retained_message_is_shown(kept: Hub) -> None:
    assert kept.ask(Verb.RETAIN_SHOW, "zeta", topic="a/1") == {"version": 1}
    assert [body for _, body in messages_in(kept.sent)] == [b"other"]
    with pytest.raises(NotFoundError, match="tenant zeta has no retained message on 'b'"):
        kept.ask(Verb.RETAIN_SHOW, "zeta", topic="b")


def test_sessions_of_other_hubs_must_be_known(hub: Hub) -> None:
    """A list without them would look whole."""
    hub.is_cut_off = True

    with pytest.raises(UnavailableError):
        hub.ask(Verb.SESSION_LIST, after="", limit=1)


def test_tenant_that_nobody_uses_now_has_no_sessions(hub: Hub) -> None:
    """Its broker is not made for the question."""
    assert hub.ask(Verb.SESSION_LIST, "zeta", after="", limit=1) == {"next": None}
    assert hub.ask(Verb.QUEUE_LIST, "zeta", after="", limit=1) == {"next": None}


@pytest.mark.parametrize(
    ("verb", "tenant", "argument", "error"),
    [
        ("session.fold", "acme", {}, ConfigError),
        *((verb, "nobody", {"after": "", "limit": 1}, NotFoundError) for verb in (Verb.SESSION_LIST, Verb.QUEUE_LIST)),
        (Verb.RETAIN_LIST, "nobody", {"filter": "#", "after": "", "limit": 1}, NotFoundError),
        (Verb.SESSION_SHOW, "acme", {"client_id": "x"}, NotFoundError),
        (Verb.SESSION_SHOW, "zeta", {"client_id": "a"}, NotFoundError),
        (Verb.QUEUE_SHOW, "acme", {"client_id": "t", "messages": 1}, NotFoundError),
        (Verb.QUEUE_SHOW, "zeta", {"client_id": "a", "messages": 1}, NotFoundError),
        (Verb.SESSION_SHOW, "acme", {"client_id": 7}, ConfigError),
        (Verb.SESSION_SHOW, "acme", {}, ConfigError),
        (Verb.SESSION_LIST, "acme", {"after": "", "limit": -1}, ConfigError),
        (Verb.SESSION_LIST, "acme", {"after": "", "limit": True}, ConfigError),
        (Verb.SESSION_LIST, "acme", {"after": "\udcff", "limit": 1}, ConfigError),
        *(
            (Verb.RETAIN_COUNT, "acme", {"filter": wrong}, ConfigError)
            for wrong in ("a#", "#/a", "", "a+/b", "$share/g/a")
        ),
    ],
)
def test_request_that_cannot_be_answered_is_refused(
    hub: Hub, verb: str, tenant: str, argument: dict[str, object], error: type[IotHubError]
) -> None:
    with pytest.raises(error):
        hub.ask(verb, tenant, **argument)


def refused(tenant_id: int, tenant: str, at_ms: int) -> Rejected:
    return Rejected(at_ms, Client(tenant_id, tenant, "dev1", "c", "192.0.2.1:5", "tcp", 4), "not_authorized", "banned")


def test_refused_connects_are_those_of_one_tenant(hub: Hub) -> None:
    """Also those from before the tenant was known, in their order."""
    for each in (refused(1, "acme", 1), refused(2, "zeta", 2), refused(NO_TENANT, "acme", 3), refused(1, "acme", 4)):
        hub.rejected.add(each)

    assert hub.ask(Verb.REJECTED_LIST) == {}
    assert [row["at_ms"] for row in hub.sent] == [1, 3, 4]
    assert hub.sent[0] == {
        "at_ms": 1,
        "tenant": "acme",
        "device": "dev1",
        "client_id": "c",
        "address": "192.0.2.1:5",
        "listener": "tcp",
        "protocol_version": 4,
        "reason": "not_authorized",
        "rule": "banned",
    }


def test_refused_connects_without_a_tenant_are_asked_for_by_themselves(hub: Hub) -> None:
    for each in (refused(1, "acme", 1), refused(NO_TENANT, "nowhere", 2)):
        hub.rejected.add(each)

    hub.ask(Verb.REJECTED_LIST, "", is_unknown=True)
    assert [row["tenant"] for row in hub.sent] == ["nowhere"]

    with pytest.raises(NotFoundError):
        hub.ask(Verb.REJECTED_LIST, "nowhere")
