"""`iothub apply`: a file becomes tenants (`iothub.admin.apply_tenant`), and the same file again changes nothing.

`iothub.admin.apply_checks` and `apply_form` refuse what no step (`iothub.admin.apply_steps`) could do.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from iothub.admin.apply_form import NOT_APPLIED
from iothub.base.errors import UnavailableError
from iothub_tenants.accounts import acl_rules, devices, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.command import Cli

WANTED: dict[str, Any] = {
    "plans": [{"name": "small", "limits": ["connections=10"]}],
    "tenants": [
        {
            "tenant": {"name": "acme", "plan": "small", "display_name": "Acme", "is_qos0_queued": True},
            "groups": ["sensors"],
            "devices": ["dev1", {"name": "dev2", "groups": ["sensors"]}, {"name": "dev3", "credential_kind": "jwt"}],
            "rules": ["allow * both #", "deny @sensors publish config/#"],
            "limits": ["publish_messages=50/1s", {"device": "dev1", "value": "device_publish_messages=5/1s"}],
        }
    ],
}


def write(tmp_path: Path, document: object) -> str:
    file = tmp_path / "tenants.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def apply(cli: Cli, tmp_path: Path, document: object, *words: str) -> dict[str, Any]:
    done = cli("-o", "json", "apply", "-f", write(tmp_path, document), *words)
    return dict(json.loads(done.out))


def changed(done: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(step["action"], step["what"], step["name"]) for step in done["steps"]]


def with_tenant(**parts: Any) -> dict[str, Any]:
    return {"tenants": [WANTED["tenants"][0] | parts]}


def test_file_becomes_tenants_and_the_next_time_nothing(cli: Cli, tmp_path: Path) -> None:
    """New devices have their secrets printed, once; a device with a token has none."""
    done = apply(cli, tmp_path, WANTED)
    again = apply(cli, tmp_path, WANTED)

    assert [each["username"] for each in done["secrets"]] == ["acme/dev1", "acme/dev2"]
    assert (again["steps"], again["secrets"]) == ([], [])
    (tenant,) = cli.rows("tenant", "list")
    assert (tenant["plan"], tenant["display_name"]) == ("small", "Acme")
    assert [(row["name"], row["credential"], row["groups"]) for row in cli.rows("device", "list", "acme")] == [
        ("dev1", "generated", []),
        ("dev2", "generated", ["sensors"]),
        ("dev3", "jwt", []),
    ]
    assert {(row["subject"], row["filter"]) for row in cli.rows("acl", "list", "acme")} == {
        ("*", "#"),
        ("@sensors", "config/#"),
    }


def test_dry_run_shows_each_step_and_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path, WANTED)

    done = cli("apply", "-f", file, "--dry-run")

    assert "+ plan small (connections=10)\n+ tenant acme (plan: small)\n" in done.err
    assert "+ acme: device dev2 (credential: generated)\n" in done.err
    assert cli.rows("tenant", "list") == []


def test_what_differs_is_changed_and_what_is_not_named_stays(cli: Cli, tmp_path: Path) -> None:
    apply(cli, tmp_path, WANTED)
    document = {
        "plans": [{"name": "small", "limits": ["connections=20"]}],
        "tenants": [
            {
                "tenant": {"name": "acme", "state": "suspended", "is_protected": True, "plan": "standard"},
                "devices": [{"name": "dev2", "groups": [], "is_enabled": False}],
                "limits": ["publish_messages=60/1s"],
            }
        ],
    }

    done = apply(cli, tmp_path, document)

    assert [(step["what"], step["change"]) for step in done["steps"]] == [
        ("plan", "connections=10 -> connections=20"),
        ("tenant", "plan: small -> standard"),
        ("tenant", "state: suspended"),
        ("tenant", "is_protected: True"),
        ("device", "is_enabled: False"),
        ("device", "leaves sensors"),
        ("limit", "publish_messages=50/1s -> publish_messages=60/1s"),
    ]
    assert apply(cli, tmp_path, document)["steps"] == []
    assert len(cli.rows("device", "list", "acme")) == 3


def test_prune_deletes_what_a_list_does_not_name(cli: Cli, tmp_path: Path) -> None:
    """After an answer; a list that the file does not have is nobody's business."""
    apply(cli, tmp_path, WANTED)
    fewer = with_tenant(groups=[], devices=["dev1"], rules=["allow * both #"])
    del fewer["tenants"][0]["limits"]
    file = write(tmp_path, fewer)

    refused = cli("apply", "-f", file, "--prune", code=2)
    done = apply(cli, tmp_path, fewer, "--prune", "--yes")

    assert "--yes" in refused.err
    assert changed(done) == [
        ("delete", "device", "dev2"),
        ("delete", "device", "dev3"),
        ("delete", "group", "sensors"),
        ("delete", "rule", "deny @sensors publish config/#"),
    ]
    assert apply(cli, tmp_path, fewer, "--prune", "--yes")["steps"] == []
    assert len(cli.rows("quota", "list", "acme")) >= 2


def test_rules_and_limits_of_what_is_pruned_are_steps(cli: Cli, tmp_path: Path) -> None:
    """They would go with it; the file has no such parts, and a rule that denied something is nothing to lose unseen."""
    wanted = with_tenant(
        rules=["allow * both #", "deny @sensors publish config/#", "deny dev2 subscribe x"],
        limits=[
            {"device": "dev1", "value": "device_publish_messages=5/1s"},
            {"device": "dev3", "value": "device_publish_bytes=5KiB/1s"},
        ],
    )
    apply(cli, tmp_path, wanted | {"plans": WANTED["plans"]})
    fewer = {"tenants": [{"tenant": {"name": "acme"}, "groups": ["other"], "devices": ["dev1"]}]}

    shown = apply(cli, tmp_path, fewer, "--prune", "--dry-run")
    apply(cli, tmp_path, fewer, "--prune", "--yes")

    assert [each for each in changed(shown) if each[0] == "delete"] == [
        ("delete", "device", "dev2"),
        ("delete", "device", "dev3"),
        ("delete", "group", "sensors"),
        ("delete", "limit", "dev3:device_publish_bytes"),
        ("delete", "rule", "deny dev2 subscribe x"),
        ("delete", "rule", "deny @sensors publish config/#"),
    ]
    assert [row["subject"] for row in cli.rows("acl", "list", "acme")] == ["*"]
    assert apply(cli, tmp_path, fewer, "--prune", "--yes")["steps"] == []


def test_rule_of_a_device_that_is_named_as_a_stream_is_not_pruned(cli: Cli, tmp_path: Path) -> None:
    """A stream of that name, which the file has and the hub has not, does not make it a stream's."""
    wanted: dict[str, Any] = {
        "tenant": {"name": "acme"},
        "devices": ["stream:s1"],
        "rules": ["allow * both #", "deny stream:s1 publish x"],
    }
    apply(cli, tmp_path, wanted)

    again = apply(cli, tmp_path, wanted | {"streams": [{"name": "s1"}]}, "--prune", "--dry-run")

    assert again["steps"] == []


@pytest.mark.parametrize("has_rules", [True, False])
def test_device_that_cannot_be_deleted_keeps_its_rules_and_limits(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_rules: bool
) -> None:
    """A rule that denies must not end before whom it is for."""
    wanted = with_tenant(
        rules=["allow * both #", "deny dev2 both secret/#"],
        limits=[{"device": "dev2", "value": "device_publish_messages=5/1s"}],
    )
    apply(cli, tmp_path, wanted | {"plans": WANTED["plans"]})

    def delete(*_given: object) -> None:
        raise UnavailableError("the disk is full")

    monkeypatch.setattr(devices, "delete", delete)
    fewer: dict[str, Any] = {"tenant": {"name": "acme"}, "devices": ["dev1", "dev3"]}
    if has_rules:
        fewer |= {"rules": ["allow * both #"], "limits": []}

    cli("apply", "-f", write(tmp_path, fewer), "--prune", "--yes", code=7)

    assert "dev2" in [row["subject"] for row in cli.rows("acl", "list", "acme")]
    assert cli.rows("quota", "list", "acme", "--device", "dev2")


def test_name_that_an_object_has_twice_is_refused(cli: Cli, tmp_path: Path) -> None:
    """Only one would count, and --prune would delete what the other one names."""
    (tmp_path / "twice.yaml").write_text("tenants:\n- tenant: {name: acme}\n  devices: [a]\n  devices: [b]\n")

    done = cli("apply", "-f", str(tmp_path / "twice.yaml"), "--prune", "--yes", code=2)

    assert "line 4: `devices` is given twice in one object" in done.err


def test_prune_of_a_plan_asks_first_and_leaves_limits_that_are_no_part_of_the_file(cli: Cli, tmp_path: Path) -> None:
    apply(cli, tmp_path, {"plans": [{"name": "small", "limits": ["connections=10", "sessions=5"]}]})

    weight = apply(cli, tmp_path, {"plans": [{"name": "small", "weight": 7}]}, "--prune")
    fewer = {"plans": [{"name": "small", "limits": ["connections=10"]}]}
    refused = cli("apply", "-f", write(tmp_path, fewer), "--prune", code=2)
    done = apply(cli, tmp_path, fewer, "--prune", "--yes")

    assert [step["action"] for step in weight["steps"]] == ["update"]
    assert "--yes" in refused.err
    assert changed(done) == [("delete", "limit", "small:sessions")]
    assert apply(cli, tmp_path, fewer, "--prune")["steps"] == []


def test_export_is_such_a_file(cli: Cli, tmp_path: Path) -> None:
    """Hashes are taken as they are, and a changed one replaces what was there; nothing is printed."""
    cli("tenant", "create", "acme")
    cli("device", "create", "acme", "dev1", "--password-stdin", stdin=b"secret")
    cli("device", "create", "acme", "dev2")
    exported = json.loads(cli("tenant", "export", "acme").out)
    assert apply(cli, tmp_path, exported)["steps"] == []
    cli("device", "set-password", "acme", "dev1", "--password-stdin", stdin=b"another")
    cli("device", "delete", "acme", "dev2", "--yes")

    done = apply(cli, tmp_path, exported)

    assert changed(done) == [("update", "device", "dev1"), ("create", "device", "dev2")]
    assert done["secrets"] == []
    assert json.loads(cli("tenant", "export", "acme").out)["devices"] == exported["devices"]


@pytest.mark.parametrize("rule", ["allow * both #", "allow stream:s1 publish x", {"subject": "stream:s1"}])
def test_parts_that_it_leaves_alone_are_named(cli: Cli, tmp_path: Path, rule: object) -> None:
    """Rules of streams that it has too: they wait until somebody has created the streams."""
    parts = {part: [{"name": "s1"}] for part in NOT_APPLIED}
    rules = [rule if isinstance(rule, str) else {"effect": "allow", "action": "both", "filter": "x"} | dict(rule)]  # type: ignore[call-overload]
    document = WANTED | with_tenant(**parts, rules=rules)

    done = cli("apply", "-f", write(tmp_path, document), "--dry-run")

    waiting = "" if rule == "allow * both #" else ", rules of streams that do not exist yet"
    assert f"not applied, use the commands of each: bans, streams, token_issuers{waiting}\n" in done.err


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"tenant": {"name": "acme"}, "device": []}, "unknown: device"),
        ({"tenants": [{"tenant": {}}]}, "tenants[0].tenant.name: expected a text"),
        (with_tenant(rules=["permit * both #"]), "tenants[0].rules[0]: expected `allow|deny"),
        (with_tenant(rules=["allow * both"]), "not `allow * both`; in YAML a rule whose filter is `#` needs quotes"),
        (with_tenant(rules=["allow * both a/#/b"]), "tenants[0].rules[0]: topic filter 'a/#/b'"),
        (with_tenant(rules=["allow * reads a/#"]), "tenants[0].rules[0]: "),
        (
            with_tenant(rules=["allow * both a/#", "allow * both b/#", "allow * both a/#"]),
            "tenants[0].rules: 'allow * both a/#' is given twice",
        ),
        (
            with_tenant(
                rules=[{"scope": "tenant", "subject": "dev1", "effect": "allow", "action": "both", "filter": "x"}]
            ),
            "tenants[0].rules[0].subject: expected none, a rule with the scope tenant is for all devices",
        ),
        *(
            (
                with_tenant(
                    rules=[{"scope": "device", "subject": each, "effect": "allow", "action": "both", "filter": "x"}]
                ),
                f"tenants[0].rules[0].subject: expected a name, not '{each}'",
            )
            for each in ("*", "@sensors")
        ),
        (
            with_tenant(rules=[{"scope": "planet", "effect": "allow", "action": "both", "filter": "x"}]),
            "tenants[0].rules[0].scope: expected one of device, group, tenant, not 'planet'",
        ),
        (
            with_tenant(rules=[{"scope": "tenant", "effect": "allow"}]),
            "tenants[0].rules[0]: expected action, filter, too",
        ),
        (
            with_tenant(devices=[{"name": "dev9", "credential_kind": "generated", "credential": "h1$zz$zz"}]),
            "tenants[0].devices[0].credential: expected the hash of a generated secret",
        ),
        (with_tenant(limits=["connexions=1"]), "tenants[0].limits[0]"),
        (with_tenant(devices=[{"name": "dev9", "password": "x"}]), "unknown: password"),
        (with_tenant(devices=[{"name": "dev9", "credential_kind": "password", "credential": "x"}]), "credential"),
        ([], "the file: expected an object"),
        (with_tenant(version=2), "tenants[0].version: expected 1, not '2'"),
        ({"format": "other", "tenants": []}, "the file.format: expected iothub-tenant, not 'other'"),
        (
            {"tenant": {"name": "acme", "is_qos0_queued": "yes"}},
            "tenants[0].tenant.is_qos0_queued: expected true or false",
        ),
        (
            with_tenant(limits=[{"device": "dev1", "value": "publish_messages=5/1s"}]),
            "limits[0]: publish_messages is counted",
        ),
        (with_tenant(groups=[5]), "tenants[0].groups: expected a list of texts"),
        (with_tenant(devices=[{"name": "d", "groups": [5]}]), "tenants[0].devices[0].groups: expected a list of texts"),
        (with_tenant(devices=[{"name": "d", "is_enabled": "false"}]), "is_enabled: expected true or false"),
        (with_tenant(limits=[{"device": 5, "value": "publish_messages=5/1s"}]), "limits[0].device: expected a text"),
        (with_tenant(tenant={"name": "acme", "allowed_networks": [5]}), "allowed_networks: expected a list of texts"),
        ({"plans": [{"name": "small", "parent": 5}]}, "plans[0].parent: expected a text"),
        ({"plans": [{"name": "small", "weight": 1.5}]}, "plans[0].weight: expected a whole number"),
        ({"plans": [{"name": "small", "parent": ""}]}, "plans[0]: "),
    ],
)
def test_mistake_is_named_with_its_place(cli: Cli, tmp_path: Path, document: object, why: str) -> None:
    done = cli("apply", "-f", write(tmp_path, document), code=2)

    assert why in done.err
    assert "Traceback" not in done.err


REFERENCES: list[tuple[dict[str, Any], int, str]] = [
    ({"plans": [{"name": "Small"}]}, 2, "plans[0]: 'Small' cannot be a plan name"),
    ({"plans": [{"name": "small", "weight": 0}]}, 2, "plans[0]: the weight of a plan is 1 to 100"),
    ({"plans": [{"name": "small", "parent": "nope"}]}, 3, "plans[0]: there is no plan 'nope'"),
    ({"plans": [{"name": "small", "parent": "small"}]}, 3, "plans[0]: there is no plan 'small'"),
    ({"plans": [{"name": "child", "parent": "small"}, {"name": "small"}]}, 3, "put it before what names it"),
    ({"plans": [{"name": "standard", "parent": "unlimited"}]}, 4, "plans[0]: plan standard is built in"),
    ({"plans": [{"name": "small"}, {"name": "small"}]}, 2, "plans: 'small' is given twice"),
    ({"plans": [{"name": f"p{n}", "parent": f"p{n - 1}" if n else "standard"} for n in range(8)]}, 2, "at most 8"),
    ({"tenant": {"name": "FAC"}}, 2, "tenants[0].tenant: 'FAC' cannot be a tenant name"),
    ({"tenant": {"name": "global"}}, 2, "tenants[0].tenant: the tenant name global is reserved"),
    ({"tenant": {"name": "acme", "plan": "nope"}}, 3, "tenants[0].tenant: there is no plan 'nope'"),
    ({"tenant": {"name": "acme", "display_name": "a\nb"}}, 2, "tenants[0].tenant: the display name"),
    ({"tenant": {"name": "acme", "client_id_policy": "any"}}, 2, "tenants[0].tenant: 'any' is not a client id policy"),
    ({"tenant": {"name": "acme", "denied_networks": ["10"]}}, 2, "tenants[0].tenant: not a network"),
    ({"tenants": [{"tenant": {"name": "acme"}}] * 2}, 2, "tenants: 'acme' is given twice"),
    ({"tenant": {"name": "acme"}, "groups": ["@"]}, 2, "tenants[0].groups: '@' cannot be a group name"),
    ({"tenant": {"name": "acme"}, "groups": ["g", "g"]}, 2, "tenants[0].groups: 'g' is given twice"),
    ({"tenant": {"name": "acme"}, "devices": ["d", "a b"]}, 2, "tenants[0].devices[1]: 'a b' cannot be a device name"),
    ({"tenant": {"name": "acme"}, "devices": ["d", {"name": "d"}]}, 2, "tenants[0].devices: 'd' is given twice"),
    ({"tenant": {"name": "acme"}, "devices": [{"name": "d", "groups": ["g"]}]}, 3, "there is no device group 'g'"),
    ({"tenant": {"name": "acme"}, "rules": ["allow @g both #"]}, 3, "tenants[0].rules[0]: there is no device group"),
    ({"tenant": {"name": "acme"}, "rules": ["allow d both #"]}, 3, "tenants[0].rules[0]: there is no device 'd'"),
    ({"tenant": {"name": "acme"}, "limits": ["connections=1", "connections=2"]}, 2, "limits[1]: limit 'connections'"),
    (
        {"tenant": {"name": "acme"}, "limits": [{"device": "d", "value": "device_publish_messages=5/1s"}]},
        3,
        "tenants[0].limits: there is no device 'd'",
    ),
]


@pytest.mark.parametrize(("document", "code", "why"), REFERENCES)
def test_what_a_step_would_refuse_is_refused_before_the_first_one(
    cli: Cli, tmp_path: Path, document: dict[str, Any], code: int, why: str
) -> None:
    """By the dry run, too; no step is shown, because none is done."""
    first = {"tenants": [{"tenant": {"name": "first"}}, *document.get("tenants", [document])]}
    file = write(tmp_path, document if "tenants" in document or "plans" in document else first)
    why = why if "tenants" in document else why.replace("tenants[0]", "tenants[1]")

    tried, done = cli("apply", "-f", file, "--dry-run", code=code), cli("apply", "-f", file, code=code)

    assert why in tried.err
    assert "+" not in tried.err
    assert (done.err, done.out) == (tried.err, "")
    assert cli.rows("tenant", "list") == []


def test_file_may_name_what_there_is(cli: Cli, tmp_path: Path) -> None:
    apply(cli, tmp_path, WANTED)
    more = {
        "plans": [{"name": "smaller", "parent": "small"}, {"name": "small", "weight": 2}],
        "tenants": [
            {
                "tenant": {"name": "acme", "plan": "smaller"},
                "devices": [{"name": "dev4", "groups": ["sensors"]}],
                "rules": ["allow dev1 both x/#", "deny @sensors publish y"],
                "limits": [{"device": "dev2", "value": "device_publish_messages=7/1s"}],
            }
        ],
    }

    assert len(apply(cli, tmp_path, more)["steps"]) == 7
    above = {"plans": [{"name": "small", "parent": "smaller"}]}
    assert "small -> smaller -> small is a cycle" in cli("apply", "-f", write(tmp_path, above), code=4).err


def test_pruned_group_is_not_there_for_a_device(cli: Cli, tmp_path: Path) -> None:
    """It would be put into the group, which is deleted then: the next run would not know the group."""
    apply(cli, tmp_path, WANTED)
    document = {
        "tenants": [{"tenant": {"name": "acme"}, "groups": [], "devices": [{"name": "d", "groups": ["sensors"]}]}]
    }

    assert "no device group 'sensors'" in cli("apply", "-f", write(tmp_path, document), "--prune", code=3).err


def test_tenant_that_is_being_deleted_is_refused(cli: Cli, tmp_path: Path) -> None:
    apply(cli, tmp_path, WANTED)
    with closing(AccountStore(sqlite_url(cli.data_dir / "accounts.db"))) as store:
        tenants.delete(store, "acme")

    assert (
        "the former tenant acme is still being deleted"
        in cli("apply", "-f", write(tmp_path, WANTED), "--dry-run", code=4).err
    )


def test_secret_is_shown_although_a_later_step_fails(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else has it; and the next run goes on from there."""

    def add(*_given: object) -> None:
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(acl_rules, "add", add)
        failed = cli("apply", "-f", write(tmp_path, WANTED), code=7)

    assert [line.split()[0] for line in failed.out.splitlines()] == ["acme/dev1", "acme/dev2"]
    assert "the disk is full; 7 of 11 changes are made: apply the file again for the rest" in failed.err
    assert {what for _, what, _ in changed(apply(cli, tmp_path, WANTED))} == {"rule", "limit"}


def test_ctrl_c_says_how_many_changes_are_made(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(acl_rules, "add", add)

    stopped = cli("apply", "-f", write(tmp_path, WANTED), code=130)

    assert [line.split()[0] for line in stopped.out.splitlines()] == ["acme/dev1", "acme/dev2"]
    assert "interrupted; 7 of 11 changes are made: apply the file again for the rest" in stopped.err


def test_file_that_is_no_yaml_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("tenants: [")

    done = cli("apply", "-f", str(tmp_path / "bad.yaml"), code=2)

    assert "expected YAML or JSON" in done.err


def test_half_of_a_character_is_refused_before_the_first_step(cli: Cli, tmp_path: Path) -> None:
    """JSON can spell one out, and no store can write it."""
    device = {"name": "d", "credential_kind": "x509", "credential": "CN=\ud800"}
    for document in (with_tenant(devices=[device]), {"tenant": {"name": "a\ud800"}}):
        (tmp_path / "half.json").write_text(json.dumps(document))

        done = cli("apply", "-f", str(tmp_path / "half.json"), code=2)

        assert "has half of a character (a lone surrogate)" in done.err


BOTH = "publish_messages=500/1s dry-run:publish_messages=100/1s"


@pytest.mark.parametrize("left", ["publish_messages=500/1s", "dry-run:publish_messages=100/1s"])
@pytest.mark.parametrize("has_file", [True, False])
def test_limit_is_pruned_without_its_dry_run_and_the_other_way_round(
    cli: Cli, tmp_path: Path, left: str, has_file: bool
) -> None:
    """They are one row of the store: what the file names stays, of a tenant and of a plan."""
    limits = [left] if has_file else ["connections=7"]
    both = {"plans": [{"name": "small", "limits": [BOTH]}], "tenants": [{"tenant": {"name": "acme"}, "limits": [BOTH]}]}
    fewer = {
        "plans": [{"name": "small", "limits": limits}],
        "tenants": [{"tenant": {"name": "acme"}, "limits": limits}],
    }
    apply(cli, tmp_path, both)

    apply(cli, tmp_path, fewer, "--prune", "--yes")

    assert [row["value"] for row in json.loads(cli("tenant", "export", "acme").out)["limits"]] == limits
    assert apply(cli, tmp_path, fewer, "--prune", "--yes")["steps"] == []


def test_dry_run_of_a_limit_that_is_not_counted_is_refused_first(cli: Cli, tmp_path: Path) -> None:
    refused = cli("apply", "-f", write(tmp_path, with_tenant(limits=["dry-run:session_expiry_s=7d"])), code=2)

    assert "tenants[0].limits[0]: session_expiry_s has no dry run" in refused.err
    assert cli.rows("tenant", "list") == []


def test_rule_of_a_stream_waits_for_it(cli: Cli, tmp_path: Path) -> None:
    """An export of another hub has both; the stream is made by its own command, in the tenant that the file makes."""
    rules = ["deny * both #", "allow stream:s1 subscribe a/#"]
    file = WANTED | with_tenant(rules=rules, streams=[{"name": "s1", "filter": "a/#"}])
    first = apply(cli, tmp_path, file)
    wrong = with_tenant(rules=["allow stream:s2 subscribe a/#"])
    unknown = cli("apply", "-f", write(tmp_path, wrong), code=3)

    assert ("create", "rule", "deny * both #") in changed(first)
    assert ("create", "rule", rules[1]) not in changed(first)
    assert "tenants[0].rules[0]: there is no stream 's2'" in unknown.err


def test_default_plan_is_asked_of_new_tenants_alone(cli: Cli, tmp_path: Path) -> None:
    apply(cli, tmp_path, {"tenants": [{"tenant": {"name": "acme"}}]})
    config = cli.data_dir / "iothub.toml"
    config.write_text(config.read_text() + '\n[tenancy]\ndefault_plan = "gone"\n')

    apply(cli, tmp_path, {"tenants": [{"tenant": {"name": "acme"}, "groups": ["g1"]}]})
    refused = cli("apply", "-f", write(tmp_path, {"tenants": [{"tenant": {"name": "new"}}]}), "--dry-run", code=3)

    assert "there is no plan 'gone'" in refused.err
