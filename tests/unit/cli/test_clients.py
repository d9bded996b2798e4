"""Connected clients from the command line: listed, shown and put out by the running hubs alone."""

from __future__ import annotations

import os

import pytest

from iothub.base.errors import NotFoundError
from iothub.records.admin_commands import Json, Request, Verb
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli
from tests.support.in_process.query_answers import CLIENT, LAST

SILENT: Json = {"unanswered": [{"hub": "two (2)", "reason": "no answer within 2 s"}]}


def hub(cli: Cli, rows: list[Json], result: Json) -> AnsweringHub:
    """A hub that answers every request with this."""
    return AnsweringHub(cli.data_dir, lambda _request: (rows, result))


def test_clients_are_listed(acme: Cli) -> None:
    with hub(acme, [CLIENT, {**CLIENT, "client_id": "c2", "protocol_version": 4}], LAST) as running:
        rows = acme.rows("client", "list", "acme", "--after", "b", "--limit", "7")

    assert running.requests == [Request(Verb.CLIENT_LIST, "acme", {"after": "b", "limit": 7})]
    assert rows[0] == {
        "name": "c1",
        "device": "dev1",
        "address": "192.0.2.1:99",
        "listener": "tcp",
        "version": "5.0",
        "connected": "2027-01-15T08:00:00Z",
        "keep_alive_s": 60,
        "subscriptions": 1,
        "queued_messages": 3,
        "in_flight_messages": 2,
        "unsent_bytes": 0,
        "node": 1,
    }
    assert (rows[1]["name"], rows[1]["version"]) == ("c2", "3.1.1")


def test_list_that_ends_at_its_limit_says_how_to_go_on(acme: Cli) -> None:
    with hub(acme, [CLIENT], {"next": "c1"}):
        cut = acme("client", "list", "acme", "--limit", "1")

    assert cut.err == "iothub: output truncated; continue with --after=c1\n"


def test_hub_that_did_not_answer_is_named(acme: Cli) -> None:
    """What the others know is printed all the same."""
    with hub(acme, [CLIENT], {**LAST, **SILENT}):
        result = acme("client", "list", "acme", "-o", "json", code=7)

    assert [row["name"] for row in result.json] == ["c1"]
    assert "hub two (2) did not answer: no answer within 2 s" in result.err


def test_client_is_shown_with_its_subscriptions(acme: Cli) -> None:
    subscription: Json = {"group": "g", "filter": "a/#", "qos": 1, "no_local": False}
    with hub(acme, [subscription], {**CLIENT, "session_expiry_s": 0xFFFFFFFF}):
        shown = acme("client", "show", "acme", "c1", "-o", "json").json
        lines = acme("client", "show", "acme", "c1").out.splitlines()

    assert shown["subscriptions"] == [{"name": "$share/g/a/#", "qos": 1, "no_local": False}]
    assert (shown["session_expiry_s"], shown["is_persistent"]) == ("never", True)
    assert lines[-3:] == ["subscriptions", "NAME          QOS  NO LOCAL", "$share/g/a/#  1    no"]


@pytest.mark.parametrize("by", ["queue", "in-flight"])
def test_clients_with_most_waiting_are_shown(acme: Cli, by: str) -> None:
    with hub(acme, [CLIENT], {}) as running:
        header, line = acme("client", "top", "acme", "--by", by).out.splitlines()

    assert running.requests == [Request(Verb.CLIENT_TOP, "acme", {"by": by, "limit": 10})]
    assert header.split()[:4] == ["NAME", "DEVICE", "QUEUED", "MESSAGES"]
    assert line.split()[:4] == ["c1", "dev1", "3", "2"]


def test_kicked_client_is_in_the_audit_log(acme: Cli) -> None:
    with hub(acme, [], CLIENT) as running:
        row = acme("client", "kick", "acme", "c1", "--yes", "-o", "json").json

    assert running.requests[0] == Request(Verb.CLIENT_KICK, "acme", {"client_id": "c1"})
    assert (row["name"], row["is_kicked"]) == ("c1", True)
    (line,) = [each for each in acme.rows("audit", "list") if each["kind"] == "client"]
    assert (line["subject"], line["action"], line["tenant"]) == ("c1", "kicked", "acme")
    assert line["after"] == {"done": "kicked", "address": "192.0.2.1:99", "node": 1}


def test_kick_that_cannot_be_written_down_is_done(acme: Cli) -> None:
    """With a warning, and the exit code of what was asked for."""
    with hub(acme, [], CLIENT):
        os.rename(acme.data_dir / "accounts.db", acme.data_dir / "accounts.away")
        result = acme("client", "kick", "acme", "c1", "--yes")

    assert "iothub: warning: not in the audit log: " in result.err
    assert result.err.endswith("kicked client c1\n")


def test_dry_run_kicks_nobody(acme: Cli) -> None:
    with hub(acme, [], CLIENT) as running:
        said = acme("client", "kick", "acme", "c1", "--dry-run")
        row = acme("client", "kick", "acme", "c1", "--dry-run", "-o", "json").json

    assert said.err == "would kick client c1 at 192.0.2.1:99\n"
    assert row["is_kicked"] is False
    assert {each.verb for each in running.requests} == {Verb.CLIENT_SHOW}


@pytest.mark.parametrize("words", [("show", "acme", "c9"), ("kick", "acme", "c9", "--yes")])
def test_client_that_is_not_there_is_refused(acme: Cli, words: tuple[str, ...]) -> None:
    def refuse(_request: Request) -> tuple[list[Json], Json]:
        raise NotFoundError("tenant acme has no connected client 'c9'; `iothub client list acme` shows them")

    with AnsweringHub(acme.data_dir, refuse):
        result = acme("client", *words, code=3)

    assert result.err.startswith("iothub: tenant acme has no connected client 'c9'; `iothub ")
    assert [each for each in acme.rows("audit", "list") if each["kind"] == "client"] == []


@pytest.mark.parametrize(
    "words", [("list", "acme"), ("show", "acme", "c1"), ("top", "acme"), ("kick", "acme", "c1", "--yes")]
)
def test_without_a_hub_nobody_knows(acme: Cli, words: tuple[str, ...]) -> None:
    assert "no hub runs in" in acme("client", *words, code=7).err
