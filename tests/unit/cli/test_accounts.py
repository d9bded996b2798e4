"""Tenants, devices, rules, limits, plans and bans from the command line: the forms that scripts rely on, with exit codes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from iothub.config.datadir import DataDir
from iothub_services.auth.secrets import verify_generated, verify_password
from tests.support.in_process.command import Cli


def credential(cli: Cli, device: str) -> str:
    with sqlite3.connect(cli.data_dir / "accounts.db") as connection:
        found = connection.execute("SELECT credential FROM device WHERE name = ?", (device,)).fetchone()[0]
    connection.close()
    return str(found)


# --- tenants


def test_tenant_is_created_with_one_visible_open_rule(cli: Cli) -> None:
    result = cli("tenant", "create", "acme", "--plan", "standard")

    assert result.out == ""
    assert "created tenant acme" in result.err
    rules = cli.rows("acl", "list", "acme")
    assert [(rule["subject"], rule["effect"], rule["action"], rule["filter"]) for rule in rules] == [
        ("*", "allow", "both", "#")
    ]


def test_closed_tenant_has_no_rule(cli: Cli) -> None:
    cli("tenant", "create", "acme", "--closed")

    assert cli.rows("acl", "list", "acme") == []


def test_list_is_an_array_of_objects_with_name(acme: Cli) -> None:
    """Scripts read lists as JSON, with `-o` before or after the noun."""
    acme("tenant", "create", "zeta")

    assert [tenant["name"] for tenant in acme.rows("tenant", "list")] == ["acme", "zeta"]
    assert acme("-o", "json", "tenant", "list").json == acme.rows("tenant", "list")


@pytest.mark.parametrize(
    "words",
    [
        ("tenant", "list"),
        ("device", "list", "acme"),
        ("quota", "show", "acme"),
        ("plan", "list"),
        ("config", "show"),
    ],
)
def test_every_list_has_names(acme: Cli, words: tuple[str, ...]) -> None:
    rows = acme.rows(*words)

    assert rows
    assert all(isinstance(row["name"], str) and row["name"] for row in rows)


def test_number_of_a_rule_is_called_so(acme: Cli) -> None:
    """It is no name, in a list as in the answers to changes."""
    made = acme("acl", "deny", "acme", "*", "publish", "b", "-o", "json").json
    listed = acme.rows("acl", "list", "acme")
    removed = acme("acl", "remove", "acme", str(made["number"]), "-o", "json").json

    assert [(rule["number"], rule["filter"]) for rule in listed] == [(2, "b"), (1, "#")]
    assert removed == {"rules": [made]}
    assert not any("name" in rule for rule in [made, *listed])


@pytest.mark.parametrize("words", [("group", "list", "acme"), ("quota", "list", "acme"), ("ban", "list", "acme")])
def test_empty_list_is_an_empty_array(acme: Cli, words: tuple[str, ...]) -> None:
    assert acme.rows(*words) == []
    assert acme(*words).out == ""


def test_table_is_aligned(acme: Cli) -> None:
    lines = acme("tenant", "list").out.splitlines()

    assert lines[0].split()[:3] == ["NAME", "STATE", "PLAN"]
    assert lines[1].startswith("acme  active  standard")
    assert lines[0].index("PLAN") == lines[1].index("standard")


def test_tenant_is_suspended_and_resumed(acme: Cli) -> None:
    acme("tenant", "suspend", "acme")
    assert acme("tenant", "show", "acme", "-o", "json").json["state"] == "suspended"

    acme("tenant", "resume", "acme")
    assert acme("tenant", "show", "acme", "-o", "json").json["state"] == "active"


def test_tenant_that_exists_is_a_conflict(acme: Cli) -> None:
    assert "tenant acme exists already" in acme("tenant", "create", "acme", code=4).err


@pytest.mark.parametrize("name", ["ACME", "a", "global", "a/b", "a" * 33, "-acme", "ac me", "acme\x1b[31m"])
def test_bad_tenant_name_is_refused(cli: Cli, name: str) -> None:
    result = cli("tenant", "create", "--", name, code=2)

    assert result.err.count("\n") == 1
    assert "\x1b" not in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("tenant", "show", "nobody"),
        ("tenant", "suspend", "nobody"),
        ("tenant", "delete", "nobody", "--confirm", "nobody"),
        ("tenant", "create", "acme", "--plan", "gold"),
        ("device", "list", "nobody"),
        ("device", "show", "nobody", "dev1"),
        ("acl", "list", "nobody"),
        ("quota", "set", "nobody", "connections=1"),
        ("plan", "show", "gold"),
        ("ban", "list", "nobody"),
    ],
)
def test_unknown_object_is_not_found(cli: Cli, words: tuple[str, ...]) -> None:
    result = cli(*words, code=3)

    assert result.out == ""
    assert result.err.startswith("iothub: there is no ")


def test_deletion_needs_the_name_when_nobody_can_be_asked(acme: Cli) -> None:
    """Without --confirm and without a terminal: exit 2, nothing happens."""
    assert "--confirm acme" in acme("tenant", "delete", "acme", code=2).err
    assert "is not the name" in acme("tenant", "delete", "acme", "--confirm", "acne", code=2).err
    acme("tenant", "show", "acme")


def test_dry_run_of_a_deletion_changes_nothing(acme: Cli) -> None:
    result = acme("tenant", "delete", "acme", "--dry-run", "-o", "json")

    assert (result.json["devices"], result.json["rules"], result.json["is_deleted"]) == (1, 1, False)
    acme("device", "show", "acme", "dev1")


def test_deleted_tenant_waits_for_the_next_start_of_a_hub(acme: Cli) -> None:
    """Which removes what is stored; its name is not free before."""
    deleted = acme("tenant", "delete", "acme", "--confirm", "acme")
    again = acme("tenant", "delete", "acme", "--confirm", "acme", "-o", "json")

    assert deleted.err == (
        "tenant acme is being deleted; no hub runs, the next start removes its stored messages; then the name is free\n"
    )
    assert again.json["is_deleted"] is False
    assert acme("tenant", "show", "acme", "-o", "json").json["state"] == "deleting"
    acme("tenant", "create", "acme", code=4)


def test_protected_tenant_is_not_deleted(acme: Cli) -> None:
    acme("tenant", "protect", "acme")
    assert "is protected" in acme("tenant", "delete", "acme", "--confirm", "acme", code=4).err

    acme("tenant", "unprotect", "acme")
    acme("tenant", "delete", "acme", "--confirm", "acme")


def test_tenant_is_updated(acme: Cli) -> None:
    words = ("--plan", "unlimited", "--display-name", "Acme & Söhne", "--allow-network", "10.0.0.0/8", "--queue-qos0")
    acme("tenant", "update", "acme", *words)

    shown = acme("tenant", "show", "acme", "-o", "json").json
    assert (shown["plan"], shown["display_name"], shown["allowed_networks"]) == (
        "unlimited",
        "Acme & Söhne",
        ["10.0.0.0/8"],
    )
    assert shown["is_qos0_queued"] is True
    acme("tenant", "update", "acme", "--allow-network", "any")
    assert acme("tenant", "show", "acme", "-o", "json").json["allowed_networks"] == []


def test_update_of_nothing_is_a_mistake(acme: Cli) -> None:
    assert "nothing to change" in acme("tenant", "update", "acme", code=2).err


def test_settings_decide_the_default_plan(cli: Cli) -> None:
    (cli.data_dir / "iothub.toml").write_text('config_version = 1\n[tenancy]\ndefault_plan = "unlimited"\n')

    cli("tenant", "create", "acme")

    assert cli("tenant", "show", "acme", "-o", "json").json["plan"] == "unlimited"


# --- devices


def test_password_comes_from_standard_input(cli: Cli) -> None:
    """`echo -n secret | iothub device create acme dev1 --password-stdin`; a final newline is not part of it."""
    cli("tenant", "create", "acme")
    first = cli("device", "create", "acme", "dev1", "--password-stdin", stdin=b"secret")
    cli("device", "create", "acme", "dev2", "--password-stdin", stdin=b"secret\n")

    assert first.out == ""
    assert "secret" not in first.err
    assert verify_password(b"secret", credential(cli, "dev1"))
    assert verify_password(b"secret", credential(cli, "dev2"))


@pytest.mark.parametrize("given", [b"", b"\n", b"a\nb", b"\xff\xfe", b"x" * 5000])
def test_secret_that_is_none_is_refused(cli: Cli, given: bytes) -> None:
    cli("tenant", "create", "acme")

    result = cli("device", "create", "acme", "dev1", "--password-stdin", stdin=given, code=2)

    assert result.err.startswith("iothub: standard input: ")


def test_secret_is_generated_and_printed_once(acme: Cli) -> None:
    """Standard output is the secret alone, so that a script can keep it."""
    result = acme("device", "create", "acme", "dev2")

    secret = result.out.strip()
    assert result.out == f"{secret}\n"
    assert len(secret) >= 22
    assert secret not in result.err
    assert verify_generated(secret, credential(acme, "dev2"), DataDir(acme.data_dir).pepper())
    assert secret not in acme("device", "show", "acme", "dev2", "-o", "json").out


@pytest.mark.parametrize("is_on_terminal", [True, False])
def test_new_device_comes_with_a_command_to_try_it(
    acme: Cli, monkeypatch: pytest.MonkeyPatch, is_on_terminal: bool
) -> None:
    """Ready to be pasted for a person; without the secret where standard output is a script's."""
    monkeypatch.setattr("iothub.cli.output.is_on_terminal", lambda: is_on_terminal)

    result = acme("device", "create", "acme", "dev2")

    secret = result.out.strip() if is_on_terminal else "SECRET"
    line = f"mosquitto_pub -h 127.0.0.1 -p 1883 -i dev2 -u acme/dev2 -P {secret} -t hello -m world"
    assert result.err.splitlines()[-1] == f"try it: {line}"


def test_command_to_try_a_device_names_the_listener_that_is_open(acme: Cli) -> None:
    """Where the hub listens, else what its settings say; nothing if mosquitto_pub cannot get in."""
    DataDir(acme.data_dir).write_hub({"tcp": "0.0.0.0:2883"})
    assert " -h 127.0.0.1 -p 2883 " in acme("device", "create", "acme", "a").err
    assert " -u acme/robot -P TOKEN " in acme("device", "create", "acme", "robot", "--jwt").err
    DataDir(acme.data_dir).remove_hub()
    with_tls = '[listeners.tls]\nport = 8883\ncert_file = "/c.pem"\nkey_file = "/k.pem"\n'
    (acme.data_dir / "iothub.toml").write_text(f'[listeners.tcp]\nport = "off"\n{with_tls}')
    assert " -p 8883 --cafile /c.pem -i b " in acme("device", "create", "acme", "b", "--password-stdin", stdin=b"x").err
    (acme.data_dir / "iothub.toml").write_text('[listeners.tcp]\nport = "off"\n')
    assert "mosquitto_pub" not in acme("device", "create", "acme", "c").err


def test_generated_secret_is_in_the_json(acme: Cli) -> None:
    made = acme("device", "create", "acme", "dev2", "-o", "json").json

    assert (made["name"], made["tenant"]) == ("dev2", "acme")
    assert verify_generated(made["secret"], credential(acme, "dev2"), DataDir(acme.data_dir).pepper())


def test_secret_comes_from_a_file(acme: Cli, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")

    acme("device", "set-password", "acme", "dev1", "--secret-file", str(tmp_path / "secret"))

    assert verify_password(b"from a file", credential(acme, "dev1"))
    assert "cannot be read" in acme("device", "set-password", "acme", "dev1", "--secret-file", "/no", code=2).err


def test_prompt_without_a_terminal_is_a_mistake(acme: Cli) -> None:
    """No-TTY never prompts."""
    assert "without a terminal" in acme("device", "create", "acme", "dev2", "--prompt", code=2).err
    assert "without a terminal" in acme("device", "set-password", "acme", "dev1", code=2).err


def test_two_sources_of_a_secret_are_a_mistake(acme: Cli) -> None:
    result = acme("device", "create", "acme", "dev2", "--password-stdin", "--prompt", stdin=b"x", code=2)

    assert "expected one of" in result.err


def test_password_is_asked_for_where_standard_input_is_a_terminal(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed in the open it would stay on the screen, without a word of what is waited for."""
    asked: list[bool] = []

    def prompt(_text: str, *, hide_input: bool, **_options: object) -> str:
        asked.append(hide_input)
        return "typed"

    monkeypatch.setattr("iothub.cli.app.App.is_interactive", True)
    monkeypatch.setattr("click.prompt", prompt)
    acme("device", "set-password", "acme", "dev1", "--password-stdin")

    assert asked == [True]
    assert verify_password(b"typed", credential(acme, "dev1"))


def test_secret_is_never_a_flag(acme: Cli) -> None:
    """Flags show in process lists."""
    assert "No such option" in acme("device", "create", "acme", "dev2", "--password", "x", code=2).err


def test_secret_is_rotated(acme: Cli) -> None:
    secret = acme("device", "rotate-secret", "acme", "dev1").out.strip()

    assert verify_generated(secret, credential(acme, "dev1"), DataDir(acme.data_dir).pepper())


def test_device_is_disabled_enabled_and_deleted(acme: Cli) -> None:
    acme("device", "disable", "acme", "dev1")
    assert acme("device", "show", "acme", "dev1", "-o", "json").json["is_enabled"] is False
    acme("device", "enable", "acme", "dev1")
    acme("device", "delete", "acme", "dev1", "--dry-run")
    acme("device", "delete", "acme", "dev1", "--yes")

    acme("device", "show", "acme", "dev1", code=3)


def test_device_gets_a_certificate(acme: Cli) -> None:
    acme("device", "set-certificate", "acme", "dev1", "CN=dev1,O=Acme")

    assert acme("device", "show", "acme", "dev1", "-o", "json").json["credential"] == "x509"


# --- rules


@pytest.mark.parametrize("effect", ["allow", "deny"])
@pytest.mark.parametrize("action", ["publish", "subscribe", "both"])
@pytest.mark.parametrize("subject", ["dev1", "*"])
def test_rule_is_added(acme: Cli, effect: str, action: str, subject: str) -> None:
    """`iothub acl allow|deny acme dev1|'*' publish|subscribe|both 'a/+/#'`."""
    acme("acl", effect, "acme", subject, action, "a/+/#")

    rules = acme.rows("acl", "list", "acme", subject)
    assert (subject, effect, action, "a/+/#") in {
        (rule["subject"], rule["effect"], rule["action"], rule["filter"]) for rule in rules
    }


def test_rule_is_removed_by_number_and_by_what_it_says(acme: Cli) -> None:
    number = str(acme("acl", "allow", "acme", "dev1", "publish", "a", "-o", "json").json["number"])
    acme("acl", "deny", "acme", "dev1", "publish", "b/#")

    acme("acl", "remove", "acme", number)
    acme("acl", "remove", "acme", "dev1", "publish", "b/#")

    assert [rule["subject"] for rule in acme.rows("acl", "list", "acme", "dev1")] == ["*"]
    acme("acl", "remove", "acme", number, code=3)
    acme("acl", "remove", "acme", "dev1", code=2)


def test_rules_that_apply_to_a_device_are_listed(acme: Cli) -> None:
    """Those of all devices, too; the number is called so, and a device that is not there is an error."""
    number = str(acme("acl", "allow", "acme", "dev1", "publish", "a", "-o", "json").json["number"])

    lines = acme("acl", "list", "acme", "dev1").out.splitlines()

    assert [line.split()[:2] for line in lines] == [["ID", "SUBJECT"], [number, "dev1"], ["1", "*"]]
    acme("acl", "list", "acme", "dev9", code=3)


@pytest.mark.parametrize(
    ("action", "topic_filter"), [("read", "a"), ("publish", "a#"), ("publish", ""), ("publish", "$share/g/a")]
)
def test_bad_rule_is_refused(acme: Cli, action: str, topic_filter: str) -> None:
    acme("acl", "allow", "acme", "dev1", action, topic_filter, code=2)


def test_group_is_named_by_a_rule(acme: Cli) -> None:
    acme("group", "create", "acme", "sensors")
    acme("group", "join", "acme", "sensors", "dev1")
    acme("acl", "deny", "acme", "@sensors", "both", "x")

    assert acme.rows("group", "list", "acme")[0]["devices"] == ["dev1"]
    acme("group", "leave", "acme", "sensors", "dev1")
    acme("group", "delete", "acme", "sensors", "--yes")
    assert acme.rows("group", "list", "acme") == []
    assert [rule["subject"] for rule in acme.rows("acl", "list", "acme")] == ["*"]


# --- limits, plans, bans


def test_limits_are_set_shown_and_unset(acme: Cli) -> None:
    """`iothub quota set acme connections=100 publish_messages=50/1s`."""
    acme("quota", "set", "acme", "connections=100", "publish_messages=50/1s")

    own = {row["name"]: row["limits"] for row in acme.rows("quota", "list", "acme")}
    assert own == {"connections": {"connections": 100}, "publish_messages": {"publish_messages": ["50/1s"]}}
    effective = {row["name"]: row["origin"] for row in acme.rows("quota", "show", "acme")}
    assert (effective["connections"], effective["sessions"]) == ("tenant", "plan")
    acme("quota", "unset", "acme", "connections")
    assert [row["name"] for row in acme.rows("quota", "list", "acme")] == ["publish_messages"]


def test_limit_is_explained(acme: Cli) -> None:
    (row,) = acme.rows("quota", "explain", "acme", "connections")

    assert (row["limits"], row["origin"], row["counted_per"]) == ({"connections": 1000}, "plan", "tenant")
    assert row["meaning"]


def test_table_of_limits_names_each_once(acme: Cli) -> None:
    acme("quota", "set", "acme", "connections=100", "publish_messages=50/1s,1000/1d", "dry-run:connections=5")

    lines = acme("quota", "list", "acme").out.splitlines()

    assert [line.split(None, 1)[1].rstrip(" -") for line in lines[1:]] == ["100, dry-run 5", "50/1s,1000/1d"]


def test_limits_joined_by_a_comma_are_told_apart(acme: Cli) -> None:
    """A comma separates the windows of one limit."""
    result = acme("quota", "set", "acme", "connections=100,publish_messages=50/1s,9/1d,sessions=1", code=2)

    assert "blanks separate limits, expected connections=100 publish_messages=50/1s,9/1d sessions=1" in result.err


def test_limits_of_many_devices_are_set_from_a_file(acme: Cli, tmp_path: Path) -> None:
    """All or nothing; `-` is standard input."""
    (tmp_path / "limits.txt").write_text("connections=5\ndev1 packet_bytes=1KiB\n")
    words = ("quota", "set", "acme", "-f")

    would = acme(*words, str(tmp_path / "limits.txt"), "--dry-run", "-o", "json").json
    assert (would["is_set"], [row["limits"] for row in would["limits"]]) == (
        False,
        [{"connections": 5}, {"packet_bytes": 1024}],
    )
    assert acme.rows("quota", "list", "acme") == []
    assert acme(*words, str(tmp_path / "limits.txt")).err == "set 2 limits\n"
    acme(*words, "-", stdin=b"sessions=9\n")
    bad = acme(*words, "-", stdin=b"sessions=8\ndev9 packet_bytes=1KiB\n\xff\n", code=4)
    assert bad.err == (
        "iothub: nothing was set (bad lines: 2):\nline 2: tenant acme has no device 'dev9'\n"
        "line 3: not UTF-8 text: save the file as UTF-8\n"
    )

    own = {(row["device"], row["name"]) for row in acme.rows("quota", "list", "acme")}
    assert own == {("", "connections"), ("", "sessions"), ("dev1", "packet_bytes")}


@pytest.mark.parametrize(
    "words",
    [
        ("-f", "limits.txt", "connections=5"),
        ("-f", "limits.txt", "--device", "dev1"),
        ("-f", "/no/such.txt"),
        ("connections=5", "--dry-run"),
        (),
    ],
)
def test_limits_come_from_one_place(acme: Cli, words: tuple[str, ...]) -> None:
    acme("quota", "set", "acme", *words, code=2)

    assert acme.rows("quota", "list", "acme") == []


@pytest.mark.parametrize(
    "limit", ["conections=5", "connections", "connections=x", "publish_messages=5", "connections=5/1s"]
)
def test_bad_limit_is_refused(acme: Cli, limit: str) -> None:
    acme("quota", "set", "acme", limit, code=2)


def test_plans_are_made_and_deleted(acme: Cli) -> None:
    assert [plan["name"] for plan in acme.rows("plan", "list")] == ["standard", "unlimited"]
    assert "create it first: `iothub --data-dir" in acme("plan", "set", "small", "connections=10", code=3).err
    acme("plan", "create", "small", "connections=10", "--weight", "3")
    acme("plan", "create", "small", code=4)
    acme("plan", "set", "small", "publish_messages=5/1s")
    shown = acme("plan", "show", "small", "-o", "json").json
    assert (shown["limits"], shown["weight"]) == ({"connections": 10, "publish_messages": ["5/1s"]}, 3)
    assert (shown["parent"], shown["inherited"]["sessions"]) == ("standard", 2000)
    assert {"connections", "publish_messages"}.isdisjoint(shown["inherited"])
    assert next(plan for plan in acme.rows("plan", "list") if plan["name"] == "small") == shown
    text = acme("plan", "show", "small").out
    own, _, inherited = text.partition("\ninherited\n")
    assert "\npublish_messages  5/1s\n" in own
    assert "\nsessions " in inherited
    acme("plan", "set", "standard", "--from", "small", code=4)
    acme("plan", "set", "small", "--from", "unlimited")
    assert acme("plan", "show", "small", "-o", "json").json["inherited"] == {}
    acme("plan", "unset", "small", "connections")
    acme("plan", "delete", "small", "--dry-run")
    acme("plan", "delete", "small", "--yes")

    acme("plan", "show", "small", code=3)
    acme("plan", "delete", "standard", "--yes", code=4)


def test_origin_of_every_limit_is_shown(acme: Cli) -> None:
    """In words for a person, in fields for a script."""
    acme("plan", "create", "small", "connections=10")
    acme("tenant", "update", "acme", "--plan", "small")
    acme("quota", "set", "acme", "sessions=7")

    lines = acme("quota", "show", "acme").out.splitlines()
    rows = {row["name"]: row for row in acme.rows("quota", "show", "acme")}

    shown = {words[0]: (words[1], " ".join(words[2:])) for words in map(str.split, lines)}
    assert shown["connections"] == ("10", "plan small")
    assert shown["subscriptions"] == ("20000", "inherited from plan standard")
    assert shown["sessions"] == ("7", "tenant")
    assert shown["device_publish_bytes"] == ("unlimited", "default")
    assert [rows["subscriptions"][field] for field in ("origin", "plan", "is_inherited")] == ["plan", "standard", True]


def test_number_beyond_64_bits_is_called_too_large(acme: Cli) -> None:
    """It is a whole number."""
    for number in ("9223372036854775808", "1" + "0" * 5000, "99999999999999999999GiB"):
        limit = f"queued_bytes={number}"
        assert "is too large, expected at most 9223372036854775807" in acme("quota", "set", "acme", limit, code=2).err
    acme("quota", "set", "acme", "queued_bytes=0000000000000000000000001")


def test_name_in_another_alphabet_is_shown_as_it_was_typed(acme: Cli) -> None:
    assert "'zähler' cannot be a tenant name" in acme("tenant", "create", "zähler", code=2).err
    assert "no device '电表'" in acme("device", "show", "acme", "电表", code=3).err


def test_ban_of_a_device_that_is_not_there_is_refused(acme: Cli) -> None:
    """A misspelt name would keep nobody out."""
    assert "no device 'dev9'" in acme("ban", "add", "acme", "device", "dev9", code=3).err

    acme("ban", "add", "acme", "client_id", "dev9")


def test_bans_are_added_and_lifted(acme: Cli) -> None:
    acme("ban", "add", "acme", "address", "192.0.2.0/24", "--for", "1h", "--reason", "scanning")
    acme("ban", "add", "acme", "device", "dev1")

    rows = acme.rows("ban", "list", "acme")
    assert [(row["name"], row["kind"], row["reason"]) for row in rows] == [
        ("192.0.2.0/24", "address", "scanning"),
        ("dev1", "device", ""),
    ]
    acme("ban", "remove", "acme", "device", "dev1")
    acme("ban", "remove", "acme", "device", "dev1", code=3)
    assert "--for" in acme("ban", "add", "acme", "device", "dev1", "--for", "soon", code=2).err
