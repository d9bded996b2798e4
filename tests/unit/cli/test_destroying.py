"""What cannot be had back is destroyed only after a yes: of a person who was asked, or of the script that says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import click
import pytest

from iothub.cli import main
from iothub.cli.app import App, DestroyingCommand
from iothub.records.admin_commands import Json, Request
from iothub_tenants.accounts import streams
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.streams import Wanted
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli, Result, commands
from tests.support.in_process.query_answers import LAST, QUEUE, SESSION
from tests.support.tokens import ES256, public_pem

WORDS = {"delete", "remove", "discard", "purge", "drop", "destroy", "erase", "clear", "wipe", "reset", "revoke"}
WORDS |= {"evict", "sweep", "forget", "unset", "leave", "empty", "flush", "kick"}
REPAIRABLE = {
    "acl remove": "prints the rule, which can be added again",
    "ban remove": "the ban can be added again",
    "context remove": "a context can be added again",
    "group leave": "the device can join again",
    "hbase sweep": "nothing refers to what it deletes",
    "job forget": "the next run of the job reads more than it had to",
    "plan unset": "the limit can be set again",
    "quota unset": "the limit can be set again",
    "tenant unprotect": "it can be protected again",
}
DECLINED = {  # each destroying command, on something that is there
    "admin key delete": ("ci",),
    "admin user delete": ("alice",),
    "cluster evict": ("2",),
    "device delete": ("acme", "dev1"),
    "group delete": ("acme", "sensors"),
    "plan delete": ("small",),
    "client kick": ("acme", "c1"),
    "queue purge": ("acme", "c1"),
    "retain delete": ("acme", "#"),
    "session discard": ("acme", "c1"),
    "stream delete": ("acme", "telemetry"),
    "tenant delete": ("acme",),
    "token-issuer remove": ("acme", "fleet"),
    "trace delete": ("acme", "t-0123456789abcdef"),
    "webhook delete": ("pager", "--tenant", "acme"),
}
WITH_AN_OPTION = {"apply"}  # it destroys with --prune alone, and asks when it knows that there is something to delete


DESTROYING = {path: found for path, found in commands(main.command) if isinstance(found, DestroyingCommand)}


@pytest.fixture
def full(acme: Cli, tmp_path: Path) -> Cli:
    """Tenant `acme` with one of each that can be destroyed."""
    key = tmp_path / "fleet.pem"
    key.write_text(public_pem(ES256))
    acme("group", "create", "acme", "sensors")
    acme("plan", "create", "small")
    acme("admin", "key", "create", "ci", "--role", "viewer")
    acme("admin", "user", "create", "alice", "--role", "viewer", "--generate")
    acme("token-issuer", "add", "acme", "fleet", "--public-key-file", str(key))
    with closing(AccountStore(sqlite_url(acme.data_dir / "accounts.db"))) as store:
        streams.create(store, "acme", Wanted("telemetry", "#"))
    acme("webhook", "create", "pager", "https://hooks.example.com/", "--tenant", "acme")
    return acme


@pytest.fixture
def asked(full: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The same where a question can be asked."""
    open_terminal(monkeypatch)
    return full


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a question be asked, unless --no-input forbids it."""
    monkeypatch.setattr(App, "is_interactive", property(lambda app: app._is_input_allowed))


def running(cli: Cli, path: str) -> AbstractContextManager[AnsweringHub | None]:
    """The hub, for commands that ask it."""
    if path.split()[0] not in ("client", "cluster", "queue", "retain", "session", "trace"):
        return nullcontext()

    def answer(request: Request) -> tuple[list[Json], Json]:
        if request.verb == "trace.list":
            return [
                {
                    "id": "t-0123456789abcdef",
                    "node": 0,
                    "kind": "client",
                    "value": "c1",
                    "for_s": 600,
                    "max_bytes": 1,
                    "payload_bytes_most": 0,
                    "started_at_ms": 0,
                    "until_ms": 0,
                    "bytes": 1,
                    "ended": "time",
                }
            ], {}
        return [], {"messages": 2, **LAST, **(SESSION if "session" in request.verb else QUEUE)}

    return AnsweringHub(cli.data_dir, answer)


@pytest.mark.parametrize(("path", "command"), list(commands(main.command)), ids=lambda value: str(value)[:40])
def test_command_that_sounds_so_destroys_only_after_a_yes(path: str, command: click.Command) -> None:
    """A new verb stands here with why it can be repaired, or it is made by `destroying_verb`."""
    first, _, _ = (command.help or "").strip().lower().partition(" ")
    sounds_so = path.split()[-1] in WORDS or first in WORDS

    assert isinstance(command, DestroyingCommand) == (sounds_so and path not in REPAIRABLE), path


@pytest.mark.parametrize("option", ["--yes", "--confirm"])
def test_option_that_answers_is_of_destroying_commands_alone(option: str) -> None:
    """Nobody makes a question of his own."""
    having = {path for path, found in commands(main.command) if any(option in each.opts for each in found.params)}

    assert having - WITH_AN_OPTION <= set(DESTROYING)
    assert having


@pytest.mark.parametrize("path", DESTROYING)
@pytest.mark.parametrize(("before", "after"), [((), ()), (("--no-input",), ()), ((), ("--no-input",))])
def test_nobody_to_ask_is_no_yes(
    call: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    before: tuple[str, ...],
    after: tuple[str, ...],
) -> None:
    """Exit code 2 with what to add, before anything is looked at; with --no-input, wherever it stands, also on a terminal."""
    if before or after:
        open_terminal(monkeypatch)
    words = [*path.split(), *DECLINED[path], *after]

    result = call("--data-dir", str(tmp_path / "none"), *before, *words)

    wanted = f"--confirm {DECLINED[path][0]}" if path == "tenant delete" else "--yes"
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith(f"to confirm, add {wanted}\n")


@pytest.mark.parametrize("path", DESTROYING)
def test_declined_question_changes_nothing(asked: Cli, path: str) -> None:
    """And says so, with exit code 1."""
    before = rows(asked)

    with running(asked, path) as hub:
        result = asked(*path.split(), *DECLINED[path], stdin=b"n\n", code=1)

    assert result.err.endswith("Cancelled; nothing was changed\n")
    assert hub is None or {each.verb for each in hub.requests} <= {"retain.count", "trace.list"}
    assert rows(asked) == before


@pytest.mark.parametrize("path", ["device delete", "group delete", "plan delete", "token-issuer remove"])
@pytest.mark.parametrize(("words", "answer"), [((), b"y\n"), (("--yes",), b"")])
def test_yes_destroys(asked: Cli, path: str, words: tuple[str, ...], answer: bytes) -> None:
    """Typed, or given."""
    result = asked(*path.split(), *DECLINED[path], *words, "-o", "json", stdin=answer)

    assert result.json["is_deleted"] is True
    asked(path.split()[0], "show", *DECLINED[path], code=3)


def test_typed_name_deletes_a_tenant(asked: Cli) -> None:
    """The question says what goes with it."""
    result = asked("tenant", "delete", "acme", stdin=b"acme\n")

    assert "This deletes tenant acme with 1 device, 1 group, 1 rule, 1 token issuer, 1 stream" in result.err
    assert asked("tenant", "show", "acme", "-o", "json").json["state"] == "deleting"


@pytest.mark.parametrize("path", ["device delete", "group delete", "plan delete", "tenant delete"])
def test_dry_run_of_every_deletion_answers_alike(full: Cli, path: str) -> None:
    """A sentence for a person, `is_deleted` for a script, and nothing to confirm."""
    words = (*path.split(), *DECLINED[path], "--dry-run")

    said, row = full(*words), full(*words, "-o", "json").json

    assert said.out == ""
    assert said.err.startswith(f"would delete {path.split()[0]} ")
    assert (row["name"], row["is_deleted"]) == (DECLINED[path][-1], False)


def rows(cli: Cli) -> list[str]:
    """How often the accounts were changed."""
    with closing(AccountStore(sqlite_url(cli.data_dir / "accounts.db"))) as store, store.read() as connection:
        return [str(row) for row in connection.exec_driver_sql("SELECT id, kind, subject FROM change_log")]
