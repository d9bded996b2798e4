"""Jobs, settings, token issuers, streams, export and import.

iothub.rest.jobs, iothub.rest.machine_paths, iothub.rest.machine, iothub.rest.issuers.
"""

from __future__ import annotations

import pytest

from iothub_tenants.accounts import devices, job_runs, streams
from iothub_tenants.accounts.job_runs import Owner, Result, Run
from iothub_tenants.accounts.streams import Wanted
from tests.support.in_process.rest_api import Api

SECRET = "0123456789abcdef0123456789abcdef"


def ended_run(api: Api) -> Run:
    run = job_runs.begin(api.store, "insights", {"dry_run": False}, Owner("hub-1", 5, "me"))
    job_runs.end(api.store, run.id, Result.DONE, figures={"tenants": 2})
    return job_runs.show(api.store, run.id)


def test_job_is_started_with_its_options(api: Api) -> None:
    made = api.post("/jobs/erase:run", {"is_dry_run": True, "options": {"tenant_id": 7, "x": False}})

    assert (made.status, made.json["result"]) == (202, "running")
    assert api.machine.starts == [("erase", False, True, ["tenant_id=7", "x=false"])]
    assert api.get("/jobs/erase").json["running"][0]["run"] == made.json["run"]
    assert api.get("/jobs/erase").json["options"][0]["is_required"] is True
    assert api.post(f"/runs/{made.json['run']}:cancel").status == 202
    assert api.machine.cancelled == [made.json["run"]]
    done = [line["after"]["done"] for line in api.get("/audit").json["items"] if line["kind"] == "job"]
    assert done == ["cancelled", "started"]


def test_job_that_does_not_exist_is_named(api: Api) -> None:
    assert "compact_events" in api.post("/jobs/nothing:run").json["detail"]
    assert api.get("/jobs/nothing").code == "not_found"
    assert api.get("/runs/99").code == "not_found"
    assert api.get("/runs/0").code == "invalid"


def test_run_has_figures_a_log_and_a_report(api: Api) -> None:
    run = ended_run(api)

    assert api.get(f"/runs/{run.id}").json["figures"] == {"tenants": 2}
    assert api.get(f"/runs/{run.id}/log?lines=2").body == b"two\nthree\n"
    report = api.get(f"/runs/{run.id}/report")
    assert report.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in report.headers["content-security-policy"]
    assert [each["name"] for each in api.get(f"/runs/{run.id}/plots").json["items"]] == ["1"]
    plot = api.get(f"/runs/{run.id}/plots/1")
    assert plot.headers["content-type"].startswith("image/svg+xml")
    assert plot.body.startswith(b"<svg width='1' xmlns=")
    assert b"currentColor" not in plot.body
    assert api.get(f"/runs/{run.id}/plots/2").code == "not_found"


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("/config", "origin", "default"),
        ("/events/lag", "lag", 2),
        ("/doctor", "state", "ok"),
    ],
)
def test_machine_is_shown(api: Api, path: str, field: str, value: object) -> None:
    assert api.get(path).json["items"][0][field] == value


def test_settings_are_read_again(api: Api) -> None:
    assert api.post("/config:reload").json["changed"] == [{"name": "log.level", "value": '"info"', "reload": "now"}]
    assert api.get("/audit").json["items"][0]["kind"] == "config"
    assert api.get("/features").json["extras"] == ["admin"]
    assert api.post("/nodes/1:evict").json["was_gone"] is True


def test_token_issuer_from_creation_to_deletion(api: Api) -> None:
    path = "/tenants/acme/token-issuers"
    made = api.post(path, {"name": "fleet", "secret": SECRET, "audience": "iothub"})

    assert (made.status, made.json["algorithm"], made.json["audience"]) == (201, "HS256", "iothub")
    assert SECRET.encode() not in made.body
    assert [row["name"] for row in api.get(path).json["items"]] == ["fleet"]
    changed = api("PATCH", f"{path}/fleet", {"audience": "", "leeway_s": 5})
    assert (changed.json["audience"], changed.json["leeway_s"]) == ("", 5)
    assert api("DELETE", f"{path}/fleet").status == 204
    assert api.get(f"{path}/fleet").code == "not_found"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "no key given"),
        ({"secret": SECRET, "public_key": "x"}, "got several"),
        ({"public_key": "x"}, "PEM"),
        ({"jwks": {}}, "key"),
        ({"algorithm": "RS256"}, "needs a key"),
    ],
)
def test_token_issuer_without_one_good_key_is_refused(api: Api, keys: dict[str, object], said: str) -> None:
    refused = api.post("/tenants/acme/token-issuers", {"name": "fleet", **keys})

    assert refused.code == "invalid"
    assert said in refused.json["detail"]


def test_stream_is_shown_with_what_the_hub_says(api: Api) -> None:
    streams.create(api.store, "acme", Wanted("out", "a/#"))

    (row,) = api.get("/tenants/acme/streams").json["items"]
    shown = api.get("/tenants/acme/streams/out").json

    assert row["topic"] == "iothub.acme.out"
    assert shown == {**row, "state": "up", "messages": 1}


def test_tenant_is_exported_and_imported(api: Api) -> None:
    document = api.post("/tenants/acme:export").json

    tried = api.post("/tenants/copy:import?dry_run=true", document)
    assert (tried.status, tried.json["is_imported"]) == (201, False)
    assert api.get("/tenants/copy").code == "not_found"
    made = api.post("/tenants/copy:import", document)
    assert (made.json["name"], made.json["devices"], made.json["without_secret"]) == ("copy", 1, [])
    assert [found.name for found in devices.list_all(api.store, "copy")] == ["dev1"]
    assert api.post("/tenants/copy:import", document).code == "conflict"
    assert api.post("/tenants/x:import", {"format": "other"}).code == "invalid"


def test_stream_from_creation_to_deletion(api: Api) -> None:
    made = api.post("/tenants/acme/streams", {"name": "telemetry", "filter": "sensors/#", "partitions": 2})

    assert (made.status, made.json["topic"], made.json["existing_topics"]) == (201, "iothub.acme.telemetry", [])
    assert api.get("/tenants/acme/streams/telemetry").json["partitions"] == 2
    assert api.post("/tenants/acme/streams", {"name": "telemetry", "filter": "#"}).code == "conflict"
    assert api.post("/tenants/nobody/streams", {"name": "a", "filter": "#"}).code == "not_found"
    assert api("DELETE", "/tenants/acme/streams/telemetry?keep_topic=true").status == 204
    assert api.machine.kept_topics == [True]
    assert api.get("/tenants/acme/streams").json["items"] == []
    assert api("DELETE", "/tenants/acme/streams/telemetry").code == "not_found"
