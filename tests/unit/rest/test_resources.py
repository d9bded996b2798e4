"""Each resource of the API, from creation to deletion: the same functions as the command line, in HTTP's words."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from iothub.base.errors import BackendError, ConflictError, UnavailableError
from iothub.cli.main import run
from iothub.records.admin_commands import Verb
from iothub.rest import tenants as rest_tenants
from iothub_tenants.accounts import acl_rules, bans, devices, tenants
from tests.support.in_process.rest_api import Api

SUBJECTS = ("tenants", "devices", "rules", "quotas", "platform")  # iothub.rest.tenants and so on


# --- iothub.rest.tenants


def test_tenant_from_creation_to_deletion(api: Api) -> None:
    made = api.post("/tenants", {"name": "new", "display_name": "New", "is_closed": True})

    assert (made.status, made.headers["location"]) == (201, "/api/v1/tenants/new")
    assert api.get("/tenants/new").json == made.json
    assert api.post("/tenants", {"name": "new"}).code == "conflict"
    assert api.post("/tenants/new:suspend").json["state"] == "suspended"
    assert api.post("/tenants/new:resume").json["state"] == "active"
    assert api.post("/tenants/new:protect").json["is_protected"] is True
    assert api("DELETE", "/tenants/new").code == "conflict"
    assert api.post("/tenants/new:unprotect").json["is_protected"] is False
    gone = api("DELETE", "/tenants/new")
    assert (gone.status, gone.json["state"]) == (202, "deleting")
    assert api.get("/tenants/nobody").code == "not_found"


def test_tenant_has_plan_and_policy_of_the_settings(api: Api) -> None:
    """As `tenant create` has."""
    made = api.post("/tenants", {"name": "new"}).json

    assert (made["plan"], made["client_id_policy"]) == ("standard", "owner")
    assert api.post("/tenants", {"name": "system"}).code == "invalid"
    assert api.post("/tenants", {"name": "other2", "plan": "nobodys"}).code == "not_found"


def test_name_that_an_object_of_a_body_has_twice_is_refused(api: Api) -> None:
    """`iothub.rest.routes`: only the last one would count."""
    twice = b'{"tenants": [{"tenant": {"name": "new"}, "devices": ["a"], "devices": ["b"]}]}'

    refused = api("POST", "/tenants:apply", raw=twice)

    assert (refused.status, refused.code) == (422, "invalid")
    assert refused.json["detail"] == "body: `devices` is given twice in one object"
    assert api("POST", "/tenants:apply", raw=twice, headers={"content-type": "Application/JSON"}).status == 422
    assert api.get("/tenants/new").code == "not_found"


@pytest.mark.parametrize("body", [b"{bad", b"[" * 200_000, b'{"a":"\xff"}', b'{"x": ' + b"7" * 5_000 + b"}"])
def test_body_that_nobody_reads_is_no_defect(api: Api, body: bytes) -> None:
    """A path without a body does not look at one."""
    assert api("POST", "/tenants/acme:suspend", raw=body).status == 200


def test_file_with_too_many_changes_is_refused_as_a_whole(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its secrets would be in an answer that nobody can read."""
    monkeypatch.setattr(rest_tenants, "MOST_STEPS", 2)
    wanted = {"tenants": [{"tenant": {"name": "new"}, "devices": ["d1"]}]}
    more = {"tenants": [{"tenant": {"name": "more"}, "devices": ["d1", "d2"]}]}

    done, refused = api.post("/tenants:apply", wanted), api.post("/tenants:apply", more)

    assert [each["username"] for each in done.json["secrets"]] == ["new/d1"]
    assert (refused.status, refused.code) == (413, "body_too_large")
    assert api.get("/tenants/more").code == "not_found"


def test_file_is_refused_before_its_first_step_or_says_how_many_are_done(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"tenants": [{"tenant": {"name": "new"}}, {"tenant": {"name": "global"}}]}
    wanted = {"tenants": [{"tenant": {"name": "new"}, "devices": ["d1"], "rules": ["allow d1 both #"]}]}

    refused = [api.post(f"/tenants:apply?dry_run={is_dry_run}", wrong) for is_dry_run in ("true", "false")]
    with monkeypatch.context() as broken:
        broken.setattr(acl_rules, "add", Mock(side_effect=ConflictError("not now")))
        stopped = api.post("/tenants:apply", wanted)
    done = api.post("/tenants:apply", wanted)

    assert [(each.status, each.code) for each in refused] == [(422, "invalid")] * 2
    assert (stopped.status, stopped.json["is_applied"]) == (200, False)
    assert stopped.json["problem"]["detail"] == "not now; 2 of 3 changes are made: apply the file again for the rest"
    assert [each["username"] for each in stopped.json["secrets"]] == ["new/d1"]
    assert (done.json["is_applied"], done.json["problem"], len(done.json["steps"])) == (True, None, 1)


def test_change_needs_the_etag_that_was_read(api: Api) -> None:
    """Or none at all."""
    before = api.get("/tenants/acme").headers["etag"]

    changed = api("PATCH", "/tenants/acme", {"display_name": "A"}, headers={"If-Match": before})
    late = api("PATCH", "/tenants/acme", {"display_name": "B"}, headers={"If-Match": before})

    assert changed.json["display_name"] == "A"
    assert (late.status, late.code) == (412, "precondition_failed")
    assert api.get("/tenants/acme").headers["etag"] == changed.headers["etag"]
    assert api("PATCH", "/tenants/acme", {"is_qos0_queued": True}, headers={"If-Match": "*"}).status == 200
    assert api("PATCH", "/tenants/acme", {"allowed_networks": ["10.0.0.0/8"]}).json["allowed_networks"] == [
        "10.0.0.0/8"
    ]
    assert api("PATCH", "/tenants/acme", {"allowed_networks": []}).json["allowed_networks"] == []
    assert api("PATCH", "/tenants/acme", {"display_name": "A"}).json["display_name"] == "A"
    assert api("DELETE", "/tenants/acme", headers={"If-Match": before}).code == "precondition_failed"


def test_pages_follow_their_links(api: Api) -> None:
    """To the end, each row once."""
    for number in range(5):
        tenants.create(api.store, f"t{number}")
    names, path, pages = [], "/tenants?limit=3", 0
    while path:
        answer = api.get(path)
        names += [row["name"] for row in answer.json["items"]]
        link = answer.headers.get("link", "")
        path = link.partition(">")[0].removeprefix("</api/v1")
        assert not link or link.endswith('; rel="next"')
        pages += 1

    assert names == ["acme", "other", "t0", "t1", "t2", "t3", "t4"]
    assert pages == 3


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1", ""])
def test_limit_of_a_page_is_bounded(api: Api, limit: str) -> None:
    assert api.get(f"/tenants?limit={limit}").code == "invalid"


def test_usage_is_summed_as_the_command_does(api: Api) -> None:
    reason = "no usage yet, because the job has never run: `iothub job run usage`"
    assert api.get("/tenants/acme/usage?by=total").json == {"items": [], "reason": reason}
    backwards = api.get("/tenants/acme/usage?from=2026-11-02T00:00:00Z&to=2026-11-01T00:00:00Z").json
    assert backwards == {"items": [], "reason": reason}
    own = api.key("own", "tenant-viewer", "acme")
    assert api.get("/tenants/acme/usage", key=own).json == {"items": []}
    assert api.get("/tenants/acme/usage?by=year").code == "invalid"


def test_changes_are_in_the_audit_log_with_the_key(api: Api) -> None:
    api.post("/tenants/acme:suspend")
    tenant_key = api.key("app", "tenant-admin", "acme")
    api.post("/tenants/acme/devices", {"name": "d2"}, key=tenant_key)

    lines = api.get("/tenants/acme/audit", key=tenant_key).json["items"]
    everywhere = api.get("/audit?limit=1")

    assert [(line["actor"], line["subject"], line["action"]) for line in lines[:3]] == [
        ("key:app", "d2", "created"),
        ("hub", "app", "created"),
        ("key:root", "acme", "changed"),
    ]
    assert everywhere.json["items"][0]["id"] == lines[0]["id"]
    assert f"after={lines[0]['id']}" in everywhere.headers["link"]
    assert api.get("/audit?after=x").code == "invalid"


# --- iothub.rest.devices


def test_device_from_creation_to_deletion(api: Api) -> None:
    made = api.post("/tenants/acme/devices", {"name": "d2"})

    assert made.status == 201
    assert len(made.json["secret"]) == 32
    assert made.headers["cache-control"] == "no-store"
    assert "secret" not in api.get("/tenants/acme/devices/d2").json
    assert api.post("/tenants/acme/devices", {"name": "d2"}).code == "conflict"
    assert api.post("/tenants/acme/devices/d2:rotate-secret").json["secret"] != made.json["secret"]
    assert api.post("/tenants/acme/devices/d2:disable").json["is_enabled"] is False
    assert api.post("/tenants/acme/devices/d2:enable").json["is_enabled"] is True
    assert api("PUT", "/tenants/acme/devices/d2/password", {"password": "x"}).json["credential"] == "password"
    assert api("DELETE", "/tenants/acme/devices/d2").status == 204
    assert api("DELETE", "/tenants/acme/devices/d2").code == "not_found"


def test_device_with_a_token_has_no_secret(api: Api) -> None:
    assert "secret" not in api.post("/tenants/acme/devices", {"name": "d2", "with_token": True}).json
    both = api.post("/tenants/acme/devices", {"name": "d3", "with_token": True, "password": "x"})
    assert both.code == "invalid"


def test_mistake_in_a_new_device_is_told_once_and_of_its_kind(api: Api) -> None:
    """A device without a token needs none, whatever else is wrong with it."""
    found = {
        str(body): [each["field"] for each in api.post("/tenants/acme/devices", body).json["errors"]]
        for body in (
            {"name": "a/b"},
            {"name": "a/b", "with_token": True},
            {"name": "d1", "with_token": False},
            {"name": "d1", "pasword": "x"},
            {},
            [],
        )
    }

    assert list(found.values()) == [
        ["body.name"],
        ["body.name"],
        ["body.with_token"],
        ["body.pasword"],
        ["body.name"],
        ["body"],
    ]


def test_devices_with_colons_in_their_names_are_no_actions(api: Api) -> None:
    api.post("/tenants/acme/devices", {"name": "a:disable"})

    assert api.get("/tenants/acme/devices/a:disable").json["is_enabled"] is True
    assert api.post("/tenants/acme/devices/a:disable:disable").json["is_enabled"] is False


def test_devices_have_pages_with_their_groups(api: Api) -> None:
    api.post("/tenants/acme/groups", {"name": "g"})
    api.post("/tenants/acme/devices", {"name": "dev2", "groups": ["g"]})

    first = api.get("/tenants/acme/devices?limit=1")
    second = api.get("/tenants/acme/devices?limit=1&after=dev1")

    assert [row["name"] for row in first.json["items"]] == ["dev1"]
    assert [(row["name"], row["groups"]) for row in second.json["items"]] == [("dev2", ["g"])]
    assert "link" in first.headers
    assert "link" not in second.headers


CSV = {"Content-Type": "text/csv"}


def test_many_devices_are_imported_or_none(api: Api) -> None:
    rows = b"name,password\nd2,x\nd3,\n"
    path = "/tenants/acme/devices:import"

    bad = api("POST", path, raw=rows, headers=CSV)
    tried = api("POST", f"{path}?generate_secrets=true&dry_run=true", raw=rows, headers=CSV)
    done = api("POST", f"{path}?generate_secrets=true", raw=rows, headers=CSV)

    assert bad.code == "conflict"
    assert "line 3" in bad.json["errors"][0]["detail"]
    assert (tried.json["devices"], tried.json["is_imported"]) == (["d2", "d3"], False)
    assert [row["username"] for row in done.json["secrets"]] == ["acme/d3"]
    assert [row["name"] for row in api.get("/tenants/acme/devices").json["items"]] == ["d2", "d3", "dev1"]
    assert api("POST", path, raw=b"\xff\xfe", headers=CSV).code == "conflict"
    assert api("POST", path, {"a": 1}).code == "unsupported_media_type"


def test_part_of_a_file_has_the_lines_of_the_file(api: Api) -> None:
    refused = api("POST", "/tenants/acme/devices:import?first_line=502", raw=b"name,password\nd2,x\nd3,\n", headers=CSV)

    assert "line 503" in refused.json["errors"][0]["detail"]
    assert api("POST", "/tenants/acme/devices:import?first_line=0", raw=b"name\n", headers=CSV).code == "invalid"


def test_rows_end_where_lines_of_a_file_end(api: Api) -> None:
    """Other marks of Unicode that divide lines are letters of a password, as in a file."""
    rows = "name,password\r\nd2,a\u2028b\x0cc\x85d\nd3,x\r".encode()

    assert api("POST", "/tenants/acme/devices:import", raw=rows, headers=CSV).json["devices"] == ["d2", "d3"]


def test_groups_have_members(api: Api) -> None:
    assert api.post("/tenants/acme/groups", {"name": "g"}).status == 201
    assert api("PUT", "/tenants/acme/groups/g/devices/dev1").json["groups"] == ["g"]
    assert api.get("/tenants/acme/groups/g").json["devices"] == ["dev1"]
    assert [row["name"] for row in api.get("/tenants/acme/groups").json["items"]] == ["g"]
    assert api("DELETE", "/tenants/acme/groups/g/devices/dev1").json["groups"] == []
    assert api("DELETE", "/tenants/acme/groups/g").status == 204
    assert api.get("/tenants/acme/groups/g").code == "not_found"


# --- iothub.rest.rules


def test_rules_are_added_judged_and_removed(api: Api) -> None:
    rule = {"subject": "dev1", "effect": "deny", "action": "publish", "filter": "a/#"}
    asked = "/tenants/acme/acl:test?device=dev1&action=publish&topic=a/b"

    assert api.get(asked).json["is_allowed"] is True
    made = api.post("/tenants/acme/acl-rules", rule)
    assert made.status == 201
    verdict = api.get(asked).json
    assert (verdict["is_allowed"], verdict["rule"]["id"]) == (False, made.json["id"])
    assert [row["effect"] for row in api.get("/tenants/acme/acl-rules").json["items"]] == ["allow", "deny"]
    assert [row["effect"] for row in api.get("/tenants/acme/acl-rules?subject=dev1").json["items"]] == ["deny", "allow"]
    assert "link" in api.get("/tenants/acme/acl-rules?limit=1").headers
    assert api("DELETE", f"/tenants/acme/acl-rules/{made.json['id']}").status == 204
    assert api("DELETE", f"/tenants/acme/acl-rules/{made.json['id']}").code == "not_found"
    assert api.post("/tenants/acme/acl-rules", {**rule, "filter": "a/#/b"}).code == "invalid"
    assert api.post("/tenants/acme/acl-rules", {**rule, "subject": "nobody"}).code == "not_found"


# --- iothub.rest.explain, iothub.admin.explaining


def test_explanation_has_the_deciding_step(api: Api) -> None:
    refused = {"node": 0, "step": "device", "outcome": "fail", "reason": "no such device", "rule": "unknown_device"}
    api.hub.answers[Verb.EXPLAIN_CONNECT] = ([refused], {})

    verdict = api.post("/tenants/acme/explain:connect", {"device": "nobody", "listener": "tls"}).json

    assert (verdict["is_allowed"], verdict["deciding"]["rule"]) == (False, "unknown_device")
    assert api.hub.asked[-1][2]["has_certificate"] is True
    assert api.post("/tenants/acme/explain:publish", {"device": "dev1", "topic": "a"}).json["is_allowed"] is True
    assert api.post("/tenants/acme/explain:subscribe", {"device": "dev1", "filter": "#"}).json["is_allowed"] is True
    assert api.post("/tenants/gone/explain:connect", {"device": "dev1"}).code == "not_found"


# --- iothub.rest.traces, iothub.admin.tracing


def test_lines_of_a_trace_come_by_time_and_once(api: Api) -> None:
    """A hub that has more holds back what others say of later."""

    def row(node: int, at_ms: int) -> dict[str, object]:
        return {"node": node, "offset": at_ms, "line": json.dumps({"at_ms": at_ms, "node": node, "payload": "p"})}

    api.hub.answers[Verb.TRACE_READ] = ([row(1, 10), row(1, 30), row(2, 20), row(2, 40)], {"active": 2})

    page = api.get("/tenants/acme/traces/t-1/log?limit=2").json

    assert [line["at_ms"] for line in page["items"]] == [10, 20, 30]
    assert (page["next"], page["is_active"]) == ("1-30,2-20", True)
    api.get("/tenants/acme/traces/t-1/log?after=1-30,2-20")
    assert api.hub.asked[-1][2]["offsets"] == {"1": 30, "2": 20}


def test_trace_is_started_with_a_name(api: Api) -> None:
    made = api.post("/tenants/acme/traces", {"kind": "client", "value": "c"})

    assert (made.status, api.hub.asked[-1][2]["id"]) == (201, made.json["name"])
    assert api.post("/tenants/acme/traces", {"kind": "secret", "value": "c"}).code == "invalid"
    assert api.post(f"/tenants/acme/traces/{made.json['name']}:stop", {}).json["hubs"] == 1
    assert api("DELETE", f"/tenants/acme/traces/{made.json['name']}").status == 204
    assert api.get("/tenants/acme/traces/t-1").code == "not_found"


def test_trace_that_a_hub_refuses_is_stopped_at_the_others(api: Api) -> None:
    """Nobody is told its name."""
    api.hub.answers[Verb.TRACE_START] = (
        [],
        {"hubs": 1, "unanswered": [{"hub": "two (2)", "reason": "it has 10 traces"}]},
    )

    assert api.post("/tenants/acme/traces", {"kind": "client", "value": "c"}).code == "unavailable"

    (_, _, started), (verb, _, stopped) = api.hub.asked[-2:]
    assert (verb, stopped["id"]) == (Verb.TRACE_STOP, started["id"])


def test_bans_are_added_and_lifted(api: Api) -> None:
    made = api.post("/tenants/acme/bans", {"kind": "address", "value": "192.0.2.7", "for_s": 60, "reason": "loud"})

    assert (made.status, made.json["value"]) == (201, "192.0.2.7/32")
    assert bans.list_all(api.store, "acme")[0].until_ms > api.store.now_ms()
    assert [row["name"] for row in api.get("/tenants/acme/bans").json["items"]] == ["192.0.2.7/32"]
    assert api("DELETE", "/tenants/acme/bans?kind=address&value=192.0.2.7").status == 204
    assert api("DELETE", "/tenants/acme/bans?kind=address&value=192.0.2.7").code == "not_found"
    assert api("DELETE", "/tenants/acme/bans").code == "invalid"


def test_bans_after_failed_logins_are_the_hubs(api: Api) -> None:
    row = {"device": "dev1", "address": "192.0.2.7", "until_ms": 1}
    api.hub.answers[Verb.BAN_LIST] = ([row], {"left_out": 0, "reason": "10 failed logins"})

    assert api.get("/tenants/acme/failure-bans").json["items"][0]["reason"] == "automatic: 10 failed logins"
    assert api("DELETE", "/tenants/acme/failure-bans/dev1?address=192.0.2.7").json == {"name": "dev1", "bans": 1}
    assert api.get("/audit").json["items"][0]["action"] == "lifted"
    api.hub.answers[Verb.BAN_LIST] = ([], {"left_out": 0, "reason": "", "unanswered": [{"hub": "two"}]})
    assert api.get("/tenants/acme/failure-bans").code == "unavailable"


# --- iothub.rest.quotas


def test_limits_are_set_and_removed_by_name(api: Api) -> None:
    path = "/tenants/acme/quotas"
    before = api.get(path)
    wanted = {"connections": 5, "publish_messages": ["50/1s", "1000/1d"], "topic_aliases": "unlimited"}

    assert before.json == {"limits": {}}
    made = api("PATCH", path, {"limits": wanted}, headers={"If-Match": before.headers["etag"]})
    assert made.json == {"limits": wanted}
    assert (
        api("PATCH", path, {"limits": {"connections": 6}}, headers={"If-Match": before.headers["etag"]}).status == 412
    )
    assert api("PATCH", path, {"limits": {"connections": None, "topic_aliases": 3}}).json["limits"] == {
        "publish_messages": ["50/1s", "1000/1d"],
        "topic_aliases": 3,
    }
    effective = {row["name"]: row for row in api.get(f"{path}:effective").json["items"]}
    assert effective["topic_aliases"]["origin"] == "tenant"
    assert effective["connections"]["origin"] == "plan"


@pytest.mark.parametrize(
    "limits",
    [{}, {"nobodys": 1}, {"connections": -1}, {"connections": "many"}, {"publish_messages": 5}, {"connections": 1.5}],
)
def test_limits_that_are_none_are_refused(api: Api, limits: object) -> None:
    assert api("PATCH", "/tenants/acme/quotas", {"limits": limits}).code == "invalid"
    assert api.get("/tenants/acme/quotas").json == {"limits": {}}


def test_of_two_limits_with_one_window_the_smaller_holds(api: Api) -> None:
    made = api("PATCH", "/tenants/acme/quotas", {"limits": {"publish_messages": ["50/1s", "40/1s", "9/1d"]}})

    assert made.json == {"limits": {"publish_messages": ["40/1s", "9/1d"]}}


def test_device_has_limits_of_its_own(api: Api) -> None:
    path = "/tenants/acme/devices/dev1/quotas"

    assert api("PATCH", path, {"limits": {"device_publish_messages": ["5/1s"]}}).status == 200
    assert api.get(path).json == {"limits": {"device_publish_messages": ["5/1s"]}}
    assert api.get("/tenants/acme/quotas").json == {"limits": {}}
    assert api("PATCH", path, {"limits": {"connections": 1}}).code == "invalid"
    assert {row["origin"] for row in api.get(f"{path}:effective").json["items"]} >= {"device", "plan"}


def test_plan_from_creation_to_deletion(api: Api) -> None:
    made = api.post("/plans", {"name": "small", "limits": {"connections": 5}})

    assert (made.status, made.json["limits"], made.json["parent"]) == (201, {"connections": 5}, "standard")
    changed = api(
        "PATCH",
        "/plans/small",
        {"limits": {"connections": None, "sessions": 3}, "weight": 2},
        headers={"If-Match": made.headers["etag"]},
    )
    assert (changed.json["limits"], changed.json["weight"]) == ({"sessions": 3}, 2)
    assert api("PATCH", "/plans/small", {"weight": 3}, headers={"If-Match": made.headers["etag"]}).status == 412
    assert [row["name"] for row in api.get("/plans").json["items"]] == ["small", "standard", "unlimited"]
    assert api("DELETE", "/plans/small").status == 204
    assert api.get("/plans/small").code == "not_found"
    assert api("DELETE", "/plans/standard").code == "conflict"


# --- iothub.rest.platform


def test_status_and_nodes_are_told(api: Api) -> None:
    api.hub.answers[Verb.STATUS] = ([], {"ready": False, "alarms": [{"name": "disk_low"}]})

    assert api.get("/status").json == {"tenants": 2, "hub": {"ready": False, "alarms": [{"name": "disk_low"}]}}
    assert api.get("/nodes").json["items"][0]["state"] == "up"
    assert api.post("/nodes/0:drain", {"rate_per_s": 7}).status == 202
    assert api.hub.asked[-1] == ("cluster.drain", "", {"node": 0, "rate_per_s": 7, "is_waited": False})
    assert api.post("/nodes/70000:drain").code == "invalid"


def test_jobs_are_listed_with_their_runs(api: Api) -> None:
    assert "compact_events" in [row["name"] for row in api.get("/jobs").json["items"]]
    assert api.get("/jobs/verify/runs").json == {"items": []}


def test_key_from_creation_to_deletion(api: Api) -> None:
    made = api.post("/api-keys", {"name": "app", "role": "tenant-viewer", "tenant": "acme"})

    assert (made.status, made.headers["cache-control"]) == (201, "no-store")
    assert api.get("/whoami", key=made.json["key"]).json["tenant"] == "acme"
    assert "key" not in api.get("/api-keys/app").json
    assert [row["name"] for row in api.get("/api-keys").json["items"]] == ["app", "root"]
    again = api.post("/api-keys/app:rotate").json["key"]
    assert api.get("/whoami", key=made.json["key"]).status == 401
    assert api.get("/whoami", key=again).status == 200
    assert api("DELETE", "/api-keys/app").status == 204
    assert api.get("/whoami", key=again).status == 401
    assert api.post("/api-keys", {"name": "x", "role": "tenant-viewer"}).code == "invalid"


def test_metrics_need_the_hubs_port(api: Api) -> None:
    key = api.key("prometheus", "scrape")

    assert api.get("/metrics", key=key).code == "not_found"
    api.hub.http = "127.0.0.1:1"
    assert "cannot be read" in api.get("/metrics").json["detail"]
    assert api.get("/tenants/nobody/metrics").code == "not_found"


# --- what all have in common


def test_hub_hears_of_a_change_before_the_client_does(api: Api) -> None:
    """So that what is revoked is revoked when the answer is there; a request that changes nothing tells nothing."""
    api.get("/tenants")
    assert api.hub.hints == 0

    api.post("/tenants/acme/devices/dev1:disable")

    assert api.hub.hints == 1
    assert devices.show(api.store, "acme", "dev1").is_enabled is False
    api.post("/tenants", {"name": "acme"})
    assert api.hub.hints == 1


def test_store_that_fails_is_unavailable(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object) -> None:
        raise BackendError("the accounts database failed: /data/accounts.db", retryable=True)

    monkeypatch.setattr(tenants, "show", fail)
    key = api.key("k", "tenant-viewer", "acme")

    assert api.get("/tenants/acme").code == "unavailable"
    assert "accounts.db" in api.get("/tenants/acme").json["detail"]
    assert "accounts.db" not in api.get("/tenants/acme", key=key).json["detail"]


@pytest.mark.parametrize("error", [ConflictError("later"), UnavailableError("later")])
def test_refusal_of_the_hub_is_the_answer(api: Api, error: Exception) -> None:
    api.hub.answers[Verb.SESSION_LIST] = error

    assert api.get("/tenants/acme/sessions").code in ("conflict", "unavailable")


def test_rows_are_those_of_the_command_line(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """One form for both: `iothub.admin.content`, `iothub.admin.hub_rows` and their like."""
    data_dir = Path(api.store.url.removeprefix("sqlite:///")).parent / "hub"
    assert run(["--data-dir", str(data_dir), "init"]) == 0
    assert run(["--data-dir", str(data_dir), "tenant", "create", "acme"]) == 0
    capsys.readouterr()
    run(["--data-dir", str(data_dir), "tenant", "list", "-o", "json"])
    (printed,) = json.loads(capsys.readouterr().out)

    assert printed.keys() == api.get("/tenants/acme").json.keys()


# --- iothub.rest.webhooks


@pytest.mark.parametrize("path", ["/webhooks", "/tenants/acme/webhooks"])
def test_webhook_from_creation_to_deletion(api: Api, path: str) -> None:
    """The secret is in two answers only."""
    made = api.post(path, {"name": "pager", "url": "https://hooks.example.com/x", "events": ["client/*"]})
    assert (made.status, made.headers["location"]) == (201, f"/api/v1{path}/pager")
    shown = api.get(f"{path}/pager").json
    assert {**shown, "secret": made.json["secret"]} == made.json
    assert api.post(path, {"name": "pager", "url": "https://a.example"}).code == "conflict"
    assert api.post(path, {"name": "x", "url": "https://a.example", "events": ["nothing"]}).code == "invalid"

    changed = api("PATCH", f"{path}/pager", {"events": ["*"], "is_enabled": False}).json
    assert (changed["events"], changed["is_enabled"], changed["url"]) == (["*"], False, "https://hooks.example.com/x")
    rotated = api.post(f"{path}/pager:rotate").json
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != made.json["secret"]
    assert [each["name"] for each in api.get(path).json["items"]] == ["pager"]
    assert api.get(f"{path}/pager/attempts").json == {"items": []}
    assert api("DELETE", f"{path}/pager").status == 204
    assert api.get(f"{path}/pager").code == "not_found"


def test_webhooks_are_tested_two_at_a_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third one, while the first two wait for their receivers, is told to come again."""
    api.post("/webhooks", {"name": "pager", "url": "https://hooks.example.com/"})
    inner: list[int] = []

    def send(*_arguments: object) -> dict[str, object]:
        inner.append(api.post("/webhooks/pager:test").status)
        return {"name": "pager", "is_delivered": True, "status": 200, "detail": "", "event_id": "x"}

    monkeypatch.setattr("iothub.rest.webhooks.send_test", send)

    assert api.post("/webhooks/pager:test").status == 200
    assert inner == [503, 200]


def test_webhook_to_a_private_address_is_tested_and_refused(api: Api) -> None:
    api.post("/tenants/acme/webhooks", {"name": "pager", "url": "http://localhost:1/"})

    found = api.post("/tenants/acme/webhooks/pager:test").json

    assert (found["is_delivered"], found["status"]) == (False, 0)
    assert "not public" in found["detail"]


@pytest.mark.parametrize("path", ["/webhooks", "/tenants/acme/webhooks"])
def test_webhook_with_a_private_address_is_neither_made_nor_changed(api: Api, path: str) -> None:
    api.post(path, {"name": "pager", "url": "https://hooks.example.com/"})
    for answer in (
        api.post(path, {"name": "inner", "url": "http://[::1]/"}),
        api("PATCH", f"{path}/pager", {"url": "http://[::1]/"}),
    ):
        assert (answer.status, answer.code) == (422, "invalid")
        assert "the address ::1 is not public; expected a public one" in answer.json["detail"]
