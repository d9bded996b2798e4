"""`iothub admin key` and `iothub audit`: keys are printed once, and every change of a command has its line."""

from __future__ import annotations

import getpass

from iothub.cli.admin import ROLES
from iothub_tenants.accounts.roles import Role
from tests.support.in_process.command import Cli


def test_roles_of_the_command_are_those_of_the_accounts() -> None:
    """The command loads no database library to know them."""
    assert set(ROLES) == set(Role)


def test_key_is_printed_once_in_the_field_key(acme: Cli) -> None:
    made = acme("admin", "key", "create", "ci", "--role", "platform-admin", "-o", "json").json

    assert made["key"].startswith(f"iothub_{made['prefix']}_")
    assert (made["name"], made["role"], made["tenant"], made["is_enabled"]) == ("ci", "platform-admin", None, True)
    assert made["key"] not in acme("admin", "key", "list", "-o", "json").out
    assert made["key"] not in acme("admin", "key", "show", "ci").out


def test_key_of_a_table_is_alone_on_standard_output(acme: Cli) -> None:
    result = acme("admin", "key", "create", "app", "--role", "tenant-admin", "--tenant", "acme")

    assert result.out.startswith("iothub_")
    assert len(result.out.splitlines()) == 1
    assert "created key app" in result.err


def test_verbs_of_a_key(acme: Cli) -> None:
    first = acme("admin", "key", "create", "ci", "--role", "viewer", "-o", "json").json["key"]

    assert acme("admin", "key", "rotate", "ci", "-o", "json").json["key"] != first
    assert acme("admin", "key", "disable", "ci", "-o", "json").json["is_enabled"] is False
    assert acme("admin", "key", "enable", "ci", "-o", "json").json["is_enabled"] is True
    acme("admin", "key", "delete", "ci", code=2)
    acme("admin", "key", "delete", "ci", "--yes")
    acme("admin", "key", "show", "ci", code=3)


def test_mistakes_of_a_key(acme: Cli) -> None:
    assert acme("admin", "key", "create", "ci", "--role", "root", code=2).out == ""
    assert "--tenant" in acme("admin", "key", "create", "ci", "--role", "tenant-admin", code=2).err
    acme("admin", "key", "create", "ci", "--role", "tenant-admin", "--tenant", "nobody", code=3)


def test_changes_of_commands_are_in_the_audit_log(acme: Cli) -> None:
    """With the user who typed them; the newest first."""
    acme("tenant", "suspend", "acme")

    rows = acme.rows("audit", "list", "--tenant", "acme")

    assert [(row["kind"], row["subject"], row["action"]) for row in rows] == [
        ("tenant", "acme", "changed"),
        ("device", "dev1", "created"),
        ("tenant", "acme", "created"),
    ]
    assert rows[0]["actor"].startswith("cli:")
    assert rows[0]["actor"].endswith(getpass.getuser())
    assert (rows[0]["before"]["state"], rows[0]["after"]["state"]) == ("active", "suspended")


def test_audit_log_has_pages(acme: Cli) -> None:
    first = acme("audit", "list", "--limit", "1", "-o", "json")
    second = acme("audit", "list", "--limit", "1", "--after", str(first.json[0]["id"]), "-o", "json")

    assert f"--after={first.json[0]['id']}" in first.err
    assert second.json[0]["id"] < first.json[0]["id"]
    acme("audit", "list", "--tenant", "nobody", code=3)
