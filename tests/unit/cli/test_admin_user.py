"""`iothub admin user`: passwords come from a prompt, standard input or a file, or are printed once."""

from __future__ import annotations

from pathlib import Path

from iothub.cli.admin_user import ROLES
from iothub_tenants.accounts.roles import OF_USERS
from tests.support.in_process.command import Cli

GOOD = "correct horse battery"


def test_roles_of_the_command_are_those_of_the_accounts() -> None:
    """The command loads no database library to know them."""
    assert tuple(OF_USERS) == ROLES


def test_generated_password_is_printed_once(acme: Cli) -> None:
    made = acme("admin", "user", "create", "alice", "--role", "viewer", "--generate", "-o", "json").json

    assert len(made["password"]) == 20
    assert (made["name"], made["role"], made["tenant"], made["is_local"]) == ("alice", "viewer", None, True)
    assert made["password"] not in acme("admin", "user", "list", "-o", "json").out
    assert "password" not in acme("admin", "user", "show", "alice", "-o", "json").json


def test_password_of_a_table_is_alone_on_standard_output(acme: Cli) -> None:
    result = acme("admin", "user", "create", "a", "--role", "tenant-admin", "--tenant", "acme", "--generate")

    assert len(result.out.splitlines()) == 1
    assert "created user a" in result.err


def test_chosen_password_is_not_printed(acme: Cli, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(GOOD)

    result = acme("admin", "user", "create", "alice", "--role", "viewer", "--secret-file", str(file))

    assert (result.out, "created user alice" in result.err) == ("", True)
    other = acme("admin", "user", "set-password", "alice", "--password-stdin", "-o", "json", stdin=GOOD.encode())
    assert GOOD not in other.out
    assert "too short" in acme("admin", "user", "set-password", "alice", "--password-stdin", code=2, stdin=b"short").err


def test_verbs_of_a_user(acme: Cli) -> None:
    acme("admin", "user", "create", "alice", "--role", "viewer", "--generate")

    assert acme("admin", "user", "disable", "alice", "-o", "json").json["is_enabled"] is False
    assert acme("admin", "user", "enable", "alice", "-o", "json").json["is_enabled"] is True
    acme("admin", "user", "delete", "alice", code=2)
    acme("admin", "user", "delete", "alice", "--yes")
    acme("admin", "user", "show", "alice", code=3)


def test_mistakes_of_a_user(acme: Cli) -> None:
    assert "--generate" in acme("admin", "user", "create", "alice", "--role", "viewer", code=2).err
    acme("admin", "user", "create", "alice", "--role", "scrape", "--generate", code=2)
    acme("admin", "user", "create", "alice", "--role", "tenant-admin", "--generate", code=2)
    acme("admin", "user", "create", "alice", "--role", "viewer", "--generate", "--password-stdin", code=2)
