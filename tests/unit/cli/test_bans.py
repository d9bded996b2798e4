"""Bans from the command line: those of the operator are in the accounts, those after failed logins in the running hub."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.base.errors import ConfigError, NotFoundError
from iothub.records.admin_commands import Verb
from iothub_tenants.accounts.commands import Command, Json
from tests.support.answering import AnsweringHub
from tests.support.command import Cli

NOON_MS = 1_800_000_000_000
ANSWER: Json = {
    "bans": [{"device": "dev1", "address": "192.0.2.7", "until_ms": NOON_MS}],
    "left_out": 0,
    "reason": "10 failed logins within 60 s",
}


def test_bans_after_failed_logins_are_listed_with_the_others(acme: Cli) -> None:
    """Who, from where, until when, and that the hub made it by itself."""
    acme("device", "create", "acme", "dev2")
    acme("ban", "add", "acme", "device", "dev2", "--reason", "stolen")
    with AnsweringHub(acme.data_dir, lambda _command: ANSWER) as hub:
        rows = acme.rows("ban", "list", "acme")
        table = acme("ban", "list", "acme").out

    assert [(row["kind"], row["name"], row["address"]) for row in rows] == [
        ("device", "dev2", None),
        ("failures", "dev1", "192.0.2.7"),
    ]
    assert rows[0].keys() == rows[1].keys()
    assert (rows[1]["until"], rows[1]["reason"]) == ("2027-01-15T08:00:00Z", "automatic: 10 failed logins within 60 s")
    assert table.splitlines()[0].split() == ["NAME", "KIND", "ADDRESS", "UNTIL", "REASON"]
    assert hub.seen[0] == ("acme", Verb.BAN_LIST, {"limit": 1000})


def test_more_bans_than_fit_are_said(acme: Cli) -> None:
    with AnsweringHub(acme.data_dir, lambda _command: {**ANSWER, "left_out": 19_000}):
        assert "19000 more bans" in acme("ban", "list", "acme").err


def of_another_version(command: Command) -> Json:
    raise ConfigError(f"this hub does not know the command {command.verb!r}: it is of another version")


@pytest.mark.parametrize(("hub", "why"), [(None, "no answer"), (of_another_version, "this hub does not know")])
def test_list_beside_a_silent_hub_says_what_is_missing(
    acme: Cli, monkeypatch: pytest.MonkeyPatch, hub: Callable[[Command], Json] | None, why: str
) -> None:
    """A list that is not whole must not look so to a script."""
    monkeypatch.setattr("iothub.cli.ban._ASK_TIMEOUT_S", 3.0 if hub else 0.05)
    acme("device", "create", "acme", "dev2")
    acme("ban", "add", "acme", "device", "dev2")
    with AnsweringHub(acme.data_dir, hub):
        result = acme("ban", "list", "acme", code=7)

    assert "dev2" in result.out
    assert f"bans after failed logins not shown: {why}" in result.err


def test_ban_after_failed_logins_is_lifted_by_the_running_hub(acme: Cli) -> None:
    with AnsweringHub(acme.data_dir, lambda _command: {"bans": 1}) as hub:
        result = acme("ban", "remove", "acme", "failures", "dev1", "--from", "192.0.2.7")
        acme("ban", "remove", "acme", "failures", "dev1")

    assert result.err == "lifted the ban of failures dev1\n"
    assert [argument["address"] for _, _, argument in hub.seen] == ["192.0.2.7", None]
    assert {verb for _, verb, _ in hub.seen} == {Verb.BAN_LIFT}


def test_ban_that_nobody_has_is_not_found(acme: Cli) -> None:
    """With or without a hub; and an address is for failed logins alone."""

    def refuse(_command: Command) -> Json:
        raise NotFoundError("device 'dev1' is not banned for failed logins; `iothub ban list acme`")

    assert "no hub runs here" in acme("ban", "remove", "acme", "failures", "dev1", code=3).err
    assert acme.rows("ban", "list", "acme") == []
    assert "`iothub --data-dir" in acme("ban", "remove", "acme", "device", "dev1", code=3).err
    assert "--from goes with" in acme("ban", "remove", "acme", "device", "dev1", "--from", "192.0.2.7", code=2).err
    with AnsweringHub(acme.data_dir, refuse):
        acme("ban", "remove", "acme", "failures", "dev1", code=3)
