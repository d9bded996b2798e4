"""What a running hub knows and does, as the API has it (`iothub.rest.live`)."""

from __future__ import annotations

import pytest

from iothub.base.errors import NotFoundError
from iothub.records.admin_commands import Verb, message_rows
from tests.support.in_process.query_answers import body
from tests.support.in_process.rest_api import Api


def test_connected_clients_are_told_by_the_hub(api: Api) -> None:
    """A client id may have any character, and end like an action."""
    listed = api.get("/tenants/acme/clients?limit=5&after=b").json
    assert (listed["items"][0]["name"], listed["unanswered"]) == ("c1", [])
    assert api.hub.asked[-1] == ("client.list", "acme", {"after": "b", "limit": 5})
    assert api.get("/tenants/acme/clients/a%2Fb:kick").json["session_expiry_s"] == 3600
    assert api.hub.asked[-1] == ("client.show", "acme", {"client_id": "a/b:kick"})
    assert api.post("/tenants/acme/clients/a%2Fb:kick:kick").json["name"] == "c1"
    assert api.hub.asked[-1] == ("client.kick", "acme", {"client_id": "a/b:kick"})


def test_clients_with_most_messages_waiting_are_told_by_the_hub(api: Api) -> None:
    found = api.get("/tenants/acme/clients:top?by=in-flight&limit=3")

    assert [row["name"] for row in found.json["items"]] == ["c1"]
    assert api.hub.asked[-1] == ("client.top", "acme", {"by": "in-flight", "limit": 3})
    assert api.get("/tenants/acme/clients:top?by=bytes").code == "invalid"


def test_clients_of_a_hub_that_did_not_answer_are_known_to_be_missing(api: Api) -> None:
    """A tenant does not hear which hub."""
    rows = api.hub.answers[Verb.CLIENT_LIST]
    assert isinstance(rows, tuple)
    missing = [{"hub": "two (2)", "reason": "there is no link to it"}]
    api.hub.answers[Verb.CLIENT_LIST] = (rows[0], {"next": "c1", "unanswered": missing})
    key = api.key("k", "tenant-viewer", "acme")

    whole, own = api.get("/tenants/acme/clients"), api.get("/tenants/acme/clients", key=key)

    assert whole.json["unanswered"] == ["hub two (2) did not answer: there is no link to it"]
    assert own.json["unanswered"] == ["a hub did not answer"]
    assert whole.headers["link"] == '</api/v1/tenants/acme/clients?after=c1>; rel="next"'


def test_sessions_and_queues_are_told_by_the_hub(api: Api) -> None:
    assert api.get("/tenants/acme/sessions").json["items"][0]["name"] == "c1"
    assert api.get("/tenants/acme/sessions/a%2Fb").json["subscriptions"] == []
    assert api.hub.asked[-1] == ("session.show", "acme", {"client_id": "a/b"})
    assert api.get("/tenants/acme/queues").json["items"][0]["messages"] == 3
    assert api.get("/tenants/acme/queues/c1").json["limits"]["messages"] == "unlimited"
    rows = list(message_rows({"position": 4, "qos": 1, "expires_at_ms": 0}, body(b"21.5")))
    api.hub.answers[Verb.QUEUE_SHOW] = (rows, {})
    assert api.get("/tenants/acme/queued-messages/c1?limit=3").json["items"][0]["payload"] == "21.5"


def test_list_of_the_hub_has_a_link_to_its_next_page(api: Api) -> None:
    rows = api.hub.answers[Verb.SESSION_LIST]
    assert isinstance(rows, tuple)
    api.hub.answers[Verb.SESSION_LIST] = (rows[0], {"next": "c 1/ä"})

    assert api.get("/tenants/acme/sessions?limit=1").headers["link"] == (
        '</api/v1/tenants/acme/sessions?limit=1&after=c+1%2F%C3%A4>; rel="next"'
    )


@pytest.mark.parametrize(
    ("method", "path", "kind", "action"),
    [
        ("POST", "/tenants/acme/clients/c1:kick", "client", "kicked"),
        ("DELETE", "/tenants/acme/sessions/c1", "session", "discarded"),
        ("DELETE", "/tenants/acme/queued-messages/c1", "queue", "purged"),
        ("DELETE", "/tenants/acme/retained?filter=a/%23", "retained", "deleted"),
        ("POST", "/nodes/0:drain", "node", "drained"),
        ("POST", "/nodes/0:resume", "node", "resumed"),
    ],
)
def test_what_the_hub_does_is_in_the_audit_log(api: Api, method: str, path: str, kind: str, action: str) -> None:
    """If it was done."""
    assert api(method, path).status < 300
    line = api.get("/audit").json["items"][0]
    assert (line["actor"], line["kind"], line["action"]) == ("key:root", kind, action)

    for verb in api.hub.answers:
        api.hub.answers[verb] = NotFoundError("there is none")
    assert api(method, path).code == "not_found"
    assert api.get("/audit").json["items"][0]["id"] == line["id"]


def test_retained_messages_are_listed_shown_and_counted(api: Api) -> None:
    api.hub.answers[Verb.RETAIN_SHOW] = (list(message_rows({}, body(b"on"))), {"version": 2})

    assert api.get("/tenants/acme/retained?filter=a/%23").json["items"][0]["name"] == "a/b"
    assert api.get("/tenants/acme/retained/a/b").json["payload"] == "on"
    assert api("DELETE", "/tenants/acme/retained?filter=a/b&dry_run=true").json["is_deleted"] is False
    assert api.hub.asked[-1][0] == "retain.count"
    assert api("DELETE", "/tenants/acme/retained").code == "invalid"


def test_hub_that_some_hubs_did_not_answer_is_no_success(api: Api) -> None:
    """It is to be repeated."""
    api.hub.answers[Verb.RETAIN_DELETE] = ([], {"messages": 1, "unanswered": [{"hub": "two", "reason": "silent"}]})

    answer = api("DELETE", "/tenants/acme/retained?filter=a")

    assert (answer.status, answer.code) == (503, "unavailable")
    assert "two" in answer.json["detail"]


def test_without_a_hub_the_accounts_are_served_and_the_rest_is_unavailable(api: Api) -> None:
    """A tenant's key does not hear where the hub would be."""
    api.hub.answers.clear()
    key = api.key("k", "tenant-admin", "acme")

    own, platform = api.get("/tenants/acme/sessions", key=key), api.get("/tenants/acme/sessions")

    assert own.code == platform.code == "unavailable"
    assert own.headers["retry-after"] == "1"
    assert "/data" in platform.json["detail"]
    assert "/data" not in own.json["detail"]
    assert api.get("/tenants/acme", key=key).status == 200


def test_refused_connects_are_told(api: Api) -> None:
    row = {
        "at_ms": 1_800_000_000_000,
        "tenant": "acme",
        "device": "dev1",
        "client_id": "c1",
        "address": "192.0.2.7",
        "listener": "tcp",
        "protocol_version": 5,
        "reason": "bad_credentials",
        "rule": "",
    }
    api.hub.answers[Verb.REJECTED_LIST] = ([row, {**row, "client_id": "c2"}], {})

    assert [each["client_id"] for each in api.get("/tenants/acme/rejected?limit=1").json["items"]] == ["c2"]
    assert len(api.get("/rejected").json["items"]) == 2
    assert api.hub.asked[-1] == ("rejected.list", "", {"is_unknown": True})
