"""Subscriptions, shared groups, publishing, alarms of all hubs. iothub.rest.messages, iothub.rest.platform."""

from __future__ import annotations

import base64

import pytest

from iothub.base.errors import TenantLimitError, UnavailableError
from iothub.records.admin_commands import MESSAGE_BYTES, Verb
from tests.support.in_process.rest_api import Api

MESSAGES = "/tenants/acme/messages"


def test_subscriptions_of_a_tenant_are_those_of_all_hubs(api: Api) -> None:
    answer = api.get("/tenants/acme/subscriptions?limit=5")

    expected = {"client_id": "c1", "name": "$share/g/a/#", "qos": 1, "no_local": False, "is_connected": True}
    assert answer.json == {"items": [expected], "unanswered": []}
    assert api.hub.asked[-1] == (
        "subscription.list",
        "acme",
        {"after": "", "limit": 5, "client_id": "", "group": ""},
    )


def test_subscriptions_are_chosen_by_client_and_by_group(api: Api) -> None:
    api.get("/tenants/acme/subscriptions?client_id=a/b&group=g")

    asked = api.hub.asked[-1][2]
    assert (asked["client_id"], asked["group"]) == ("a/b", "g")


def test_page_of_subscriptions_goes_on_behind_its_last_one(api: Api) -> None:
    """However long client id and filter are: 4 KiB of them, each letter escaped, fit into the link."""
    rows = api.hub.answers[Verb.SUBSCRIPTION_LIST]
    assert isinstance(rows, tuple)
    place = '["' + "c" * 4096 + '","g","' + '\\"' * 4096 + '"]'
    api.hub.answers[Verb.SUBSCRIPTION_LIST] = (rows[0], {"next": place})

    link = api.get("/tenants/acme/subscriptions").headers["link"]
    path = link.partition("<")[2].partition(">")[0].removeprefix("/api/v1")

    assert api.get(path).status == 200
    assert api.hub.asked[-1][2]["after"] == place


def test_shared_groups_have_their_members_counted(api: Api) -> None:
    assert api.get("/tenants/acme/share-groups").json["items"] == [
        {"name": "g", "filter": "a/#", "connected": 2, "away": 1}
    ]


def test_hub_that_is_missing_in_a_list_is_named(api: Api) -> None:
    missing = {"next": None, "unanswered": [{"hub": "two (2)", "reason": "silent"}]}
    for verb in (Verb.SUBSCRIPTION_LIST, Verb.GROUP_LIST, Verb.ALARM_LIST):
        api.hub.answers[verb] = ([], missing)

    for path in ("/tenants/acme/subscriptions", "/tenants/acme/share-groups", "/alarms"):
        assert api.get(path).json["unanswered"] == ["hub two (2) did not answer: silent"]


def test_alarms_are_those_of_all_hubs_the_oldest_first(api: Api) -> None:
    rows = [{"node": 1, "name": "b", "since": 20.0}, {"node": 2, "name": "a", "since": 10.0}]
    api.hub.answers[Verb.ALARM_LIST] = (list(rows), {})

    found = api.get("/alarms").json["items"]

    assert [(row["node"], row["since"]) for row in found] == [(2, "1970-01-01T00:00:10Z"), (1, "1970-01-01T00:00:20Z")]


# --- publishing


def test_message_is_published_and_written_into_the_audit_log(api: Api) -> None:
    """Without its payload."""
    properties = {"content_type": "text/plain", "user_properties": [["a", "b"]]}
    body = {"topic": "a/b", "payload": "21.5 °C", "qos": 1, "retain": True, "expiry_s": 60, "properties": properties}

    made = api.post(MESSAGES, body)

    assert (made.status, made.json["name"], made.json["bytes"]) == (200, "a/b", 8)
    asked = api.hub.asked[-1][2]
    assert base64.b64decode(str(asked["payload"])) == "21.5 °C".encode()
    assert {name: asked[name] for name in ("topic", "qos", "retain", "expiry_s")} == {
        "topic": "a/b",
        "qos": 1,
        "retain": True,
        "expiry_s": 60,
    }
    assert asked["properties"] == properties
    line = api.get("/audit").json["items"][0]
    assert (line["kind"], line["subject"], line["action"]) == ("message", "a/b", "published")
    assert "21.5" not in str(line)


def test_message_may_be_bytes(api: Api) -> None:
    api.post(MESSAGES, {"topic": "a", "payload_base64": "AP8="})

    assert api.hub.asked[-1][2]["payload"] == "AP8="


def test_repeated_request_publishes_once(api: Api) -> None:
    for _ in range(2):
        assert api.post(MESSAGES, {"topic": "a"}, headers={"Idempotency-Key": "k"}).status == 200

    assert [each[0] for each in api.hub.asked].count("message.publish") == 1


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"topic": "a/+"}, 422, "invalid"),
        ({"topic": "$SYS/a"}, 422, "invalid"),
        ({"topic": ""}, 422, "invalid"),
        ({"qos": 3}, 422, "invalid"),
        ({"payload_base64": "?"}, 422, "invalid"),
        ({"payload": "a", "payload_base64": "AA=="}, 422, "invalid"),
        ({"properties": {"response_topic": "a/#"}}, 422, "invalid"),
        ({"properties": {"user_properties": [["a"]]}}, 422, "invalid"),
        ({"payload": "x" * (MESSAGE_BYTES + 1)}, 413, "body_too_large"),
    ],
)
def test_message_that_is_none_is_refused_before_the_hub_is_asked(
    api: Api, change: dict[str, object], status: int, code: str
) -> None:
    answer = api.post(MESSAGES, {"topic": "a", **change})

    assert (answer.status, answer.code) == (status, code)
    assert api.hub.asked == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(TenantLimitError("publish_messages"), 429, "limit_exceeded"), (UnavailableError("full"), 503, "unavailable")],
)
def test_refusal_of_the_hub_is_the_answer(api: Api, error: Exception, status: int, code: str) -> None:
    api.hub.answers[Verb.MESSAGE_PUBLISH] = error

    answer = api.post(MESSAGES, {"topic": "a"}, headers={"Idempotency-Key": "k"})

    assert (answer.status, answer.code, answer.headers["retry-after"]) == (status, code, "1")
    assert api.get("/audit").json["items"][0]["kind"] != "message"


def test_payload_that_is_no_unicode_is_refused(api: Api) -> None:
    answer = api.post(MESSAGES, {"topic": "a", "payload": "\ud800"})

    assert answer.status == 422
    assert "body: `payload` has half of a character" in answer.json["detail"]
