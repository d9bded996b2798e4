"""A message that an administrator publishes: it goes a client's way, and what a client could not publish is refused by its name."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import (
    ConfigError,
    ConflictError,
    DeniedError,
    IotHubError,
    NotFoundError,
    TenantLimitError,
    UnavailableError,
)
from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub.records.admin_commands import Json, Request, Verb, answer_with
from iothub_services.auth.port import TenantRecord, TenantState
from iothub_services.quota.names import Quota
from iothub_tenants.background.admin_publish import AdminPublish
from tests.support.clients import property_names as names
from tests.support.in_process.control_harness import EVERYTHING, Harness

MakeHarness = Callable[..., Harness]


class Administrator:
    """Publishes to tenant `acme`."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.applied = 0
        self._verbs = AdminPublish(harness.hub, self._apply_changes).verbs

    async def _apply_changes(self) -> None:
        self.applied += 1

    async def rows(self, rows: Sequence[Json]) -> None:
        raise AssertionError(rows)

    def start(self, topic: str = "a", payload: bytes = b"x", tenant: str = "acme", **more: object) -> list[Any]:
        """Ask; the list gets the answer, or the failure."""
        argument: dict[str, object] = {"topic": topic, "payload": base64.b64encode(payload).decode()}
        argument |= {"qos": 0, "retain": False, "expiry_s": None, "properties": None, **more}
        answers: list[Any] = []
        request = Request(Verb.MESSAGE_PUBLISH, tenant, argument)
        Deferred.fromCoroutine(answer_with(self._verbs, request, self)).addBoth(answers.append)
        return answers

    def publish(self, topic: str = "a", payload: bytes = b"x", tenant: str = "acme", **more: object) -> Json:
        answers = self.start(topic, payload, tenant, **more)
        self.harness.settle()
        (answer,) = answers
        if hasattr(answer, "raiseException"):
            answer.raiseException()
        return cast("Json", answer)


@pytest.fixture
def admin(make_harness: MakeHarness) -> Administrator:
    return Administrator(make_harness())


def test_message_comes_to_its_subscribers_with_its_properties(admin: Administrator) -> None:
    client = admin.harness.join()
    client.subscribe(("a/#", 1))
    properties = {
        "content_type": "text/plain",
        "correlation_data": "AP8=",
        "user_properties": [["k", "v"], ["k", "w"]],
    }

    answer = admin.publish("a/b", b"on", qos=1, properties=properties, expiry_s=60)

    (received,) = client.take()
    assert (received.topic, received.payload, received.qos) == ("a/b", b"on", 1)
    assert received.property(names.CONTENT_TYPE) == "text/plain"
    assert received.property(names.MESSAGE_EXPIRY) == 60
    assert (answer["has_subscribers"], answer["is_retained"]) == (True, False)
    assert admin.applied == 1


def test_answer_comes_when_the_message_is_stored_for_a_session_that_is_away(admin: Administrator) -> None:
    kept = admin.harness.join("kept", clean=False, props=[(names.SESSION_EXPIRY, 100)])
    kept.subscribe(("a", 1))
    kept.disconnect()
    admin.harness.settle()
    admin.harness.is_store_held = True

    answers = admin.start(qos=1)
    admin.harness.settle()
    assert answers == []
    admin.harness.is_store_held = False
    admin.harness.settle()

    assert answers[0]["has_subscribers"] is True
    assert len(admin.harness.store.queue(admin.harness.session("kept").queue_id).records) == 1


def test_message_for_nobody_says_so(admin: Administrator) -> None:
    assert admin.publish()["has_subscribers"] is False
    assert admin.publish(retain=True, qos=1) | {"message_id": ""} == {
        "message_id": "",
        "is_retained": True,
        "has_subscribers": False,
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"topic": "a/+"}, ConfigError),
        ({"topic": ""}, ConfigError),
        ({"topic": "a\0"}, ConfigError),
        ({"topic": "$SYS/a"}, DeniedError),
        ({"topic": "$share/g/a"}, DeniedError),
        ({"qos": 3}, ConfigError),
        ({"expiry_s": 2**32}, ConfigError),
        ({"payload": b"", "retain": 1}, ConfigError),
        ({"properties": {"response_topic": "#"}}, ConfigError),
        ({"properties": {"payload_format_indicator": 7}}, ConfigError),
        ({"properties": {"user_properties": [["one"]]}}, ConfigError),
        ({"properties": {"correlation_data": "?"}}, ConfigError),
        ({"properties": "none"}, ConfigError),
        ({"tenant": "nobody"}, NotFoundError),
    ],
)
def test_what_is_no_message_is_refused(admin: Administrator, change: dict[str, Any], error: type[IotHubError]) -> None:
    client = admin.harness.join()
    client.subscribe(("#", 0))

    with pytest.raises(error):
        admin.publish(**change)

    client.nothing()


def test_tenant_that_is_suspended_publishes_nothing(admin: Administrator) -> None:
    admin.harness.accounts.add(TenantRecord(7, "acme", state=TenantState.SUSPENDED, rules=(EVERYTHING,)))

    with pytest.raises(ConflictError, match="acme is suspended"):
        admin.publish()


@pytest.mark.parametrize(
    ("limits", "change", "quota"),
    [
        ("publish_messages=1/1m", {}, Quota.PUBLISH_MESSAGES),
        ("publish_messages=1/1d", {}, Quota.PUBLISH_MESSAGES),
        ("topic_levels=2", {"topic": "a/b/c"}, Quota.TOPIC_LEVELS),
        ("topic_bytes=3", {"topic": "abcd"}, Quota.TOPIC_BYTES),
        ("packet_bytes=100", {"payload": b"x" * 100}, Quota.PACKET_BYTES),
        ("user_properties=1", {"properties": {"user_properties": [["a", "b"], ["c", "d"]]}}, Quota.USER_PROPERTIES),
    ],
)
def test_limit_of_the_tenant_is_named_and_counted(
    make_harness: MakeHarness, limits: str, change: dict[str, Any], quota: Quota
) -> None:
    """The rates let one message through."""
    harness = make_harness()
    harness.limit(limits)
    admin = Administrator(harness)
    client = harness.join()
    client.subscribe(("#", 0))
    if quota is Quota.PUBLISH_MESSAGES:
        admin.publish()
        assert client.payloads() == [b"x"]

    with pytest.raises(TenantLimitError, match=f"the limit {quota.value} of tenant acme") as caught:
        admin.publish(**change)

    assert caught.value.limit == quota.value
    assert quota in harness.recorder.refusals
    client.nothing()


def test_deliveries_that_are_stored_count_for_persistent_fanout(make_harness: MakeHarness) -> None:
    harness = make_harness()
    harness.limit("persistent_fanout=1/1m")
    admin = Administrator(harness)
    for name in ("k1", "k2"):
        harness.join(name, clean=False, props=[(names.SESSION_EXPIRY, 100)]).subscribe(("a", 1))

    admin.publish(qos=1)  # a rate lets the first one through, however large it is

    with pytest.raises(TenantLimitError, match="persistent_fanout"):
        admin.publish(qos=1)
    assert admin.publish(qos=0)["has_subscribers"] is True


@pytest.mark.parametrize("cause", ["another hub", "the disk", "a full stream"])
def test_message_is_refused_while_clients_would_wait(admin: Administrator, cause: str) -> None:
    tenant = admin.harness.acme.plane
    if cause == "another hub":
        tenant.is_held = True
    elif cause == "the disk":
        admin.harness.plane.turn.note_disk(True)
    else:
        sink = Session(tenant, "", "", is_persistent=False)
        sink.is_sink = True
        sink.control = cast("Any", type("Full", (), {"is_full": True}))
        tenant.router.subscribe(Subscription(sink, b"a", qos=1))

    with pytest.raises(UnavailableError, match="try again"):
        admin.publish(qos=1)


def test_store_that_gives_up_is_said(admin: Administrator) -> None:
    kept = admin.harness.join("kept", clean=False, props=[(names.SESSION_EXPIRY, 100)])
    kept.subscribe(("a", 1))
    admin.harness.store.fails = False

    with pytest.raises(UnavailableError, match="did not take the message"):
        admin.publish(qos=1)
