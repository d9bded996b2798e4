"""Bans from the command line: those of the operator are in the accounts, those after failed logins in the running hub."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError, NotFoundError
from iothub.records.admin_commands import Json, Request, Verb
from tests.support.in_process.answering import AnsweringHub, Answers
from tests.support.in_process.command import Cli
from tests.support.in_process.query_answers import NOON_MS

BAN: Json = {"device": "dev1", "address": "192.0.2.7", "until_ms": NOON_MS}
RESULT: Json = {"left_out": 0, "reason": "10 failed logins within 60 s"}
UNANSWERED = {"unanswered": [{"hub": "b (2)", "reason": "there is no link to it"}]}


def test_bans_after_failed_logins_are_listed_with_the_others(acme: Cli) -> None:
    """Who, from where, until when, and that the hub made it by itself."""
    acme("device", "create", "acme", "dev2")
    acme("ban", "add", "acme", "device", "dev2", "--reason", "stolen")
    with AnsweringHub(acme.data_dir, lambda _request: ([BAN], RESULT)) as hub:
        rows = acme.rows("ban", "list", "acme")
        table = acme("ban", "list", "acme").out

    assert [(row["kind"], row["name"], row["address"]) for row in rows] == [
        ("device", "dev2", None),
        ("failures", "dev1", "192.0.2.7"),
    ]
    assert rows[0].keys() == rows[1].keys()
    assert (rows[1]["until"], rows[1]["reason"]) == ("2027-01-15T08:00:00Z", "automatic: 10 failed logins within 60 s")
    assert table.splitlines()[0].split() == ["NAME", "KIND", "ADDRESS", "UNTIL", "REASON"]
    assert hub.requests[0] == Request(Verb.BAN_LIST, "acme", {"limit": 1000})


def test_pages_of_bans_are_the_same_whichever_hub_answers_first(acme: Cli) -> None:
    """Two hubs have the same bans, which end at other times: each is on one page, once."""
    here = [
        {**BAN, "device": name, "address": address} for name in ("b", "a") for address in ("192.0.2.7", "192.0.2.6")
    ]
    there = [{**each, "until_ms": NOON_MS + 60_000} for each in reversed(here)]
    found: list[str] = []
    with AnsweringHub(acme.data_dir, lambda _request: ([*here, *there], RESULT)) as hub:
        for _ in here:
            after = ("--after", f"failures:{found[-1]}") if found else ()
            (row,) = acme.rows("ban", "list", "acme", "--limit", "1", *after)
            found.append(f"{row['name']}:{row['address']}")
            assert row["until"] == "2027-01-15T08:01:00Z"
            here, there = there, here

    assert found == ["a:192.0.2.6", "a:192.0.2.7", "b:192.0.2.6", "b:192.0.2.7"]
    assert len(hub.requests) == 4


def test_more_bans_than_fit_are_said(acme: Cli) -> None:
    with AnsweringHub(acme.data_dir, lambda _request: ([BAN], {**RESULT, "left_out": 19_000})):
        assert "19000 more bans" in acme("ban", "list", "acme").err


def test_list_names_the_hubs_that_are_missing_in_it(acme: Cli) -> None:
    """What the others have is listed all the same."""
    with AnsweringHub(acme.data_dir, lambda _request: ([BAN], {**RESULT, **UNANSWERED})):
        result = acme("ban", "list", "acme", code=7)

    assert "dev1" in result.out
    assert result.err.startswith("iothub: hub b (2) did not answer: there is no link to it\nwhat these hubs have")


def of_another_version(request: Request) -> tuple[list[Json], Json]:
    raise ConfigError(f"this hub does not know the request {request.verb!r}: it is of another version")


@pytest.mark.parametrize(
    ("hub", "why"), [(None, "which does not answer on admin.sock"), (of_another_version, "this hub does not know")]
)
def test_list_beside_a_silent_hub_says_what_is_missing(acme: Cli, hub: Answers | None, why: str) -> None:
    """A list that is not whole must not look so to a script."""
    acme("device", "create", "acme", "dev2")
    acme("ban", "add", "acme", "device", "dev2")
    with AnsweringHub(acme.data_dir, hub):
        result = acme("ban", "list", "acme", code=7)

    assert "dev2" in result.out
    assert "bans after failed logins not shown: " in result.err
    assert why in result.err


def test_ban_after_failed_logins_is_lifted_by_the_running_hub(acme: Cli) -> None:
    with AnsweringHub(acme.data_dir, lambda _request: ([], {"bans": 1})) as hub:
        result = acme("ban", "remove", "acme", "failures", "dev1", "--from", "192.0.2.7")
        acme("ban", "remove", "acme", "failures", "dev1")

    assert result.err == "lifted the ban of failures dev1\n"
    assert [each.argument["address"] for each in hub.requests] == ["192.0.2.7", None]
    assert {each.verb for each in hub.requests} == {Verb.BAN_LIFT}


def test_ban_that_nobody_has_is_not_found(acme: Cli) -> None:
    """With or without a hub; and an address is for failed logins alone."""

    def refuse(_request: Request) -> tuple[list[Json], Json]:
        raise NotFoundError("device 'dev1' is not banned for failed logins; `iothub ban list acme`")

    assert "no hub runs here" in acme("ban", "remove", "acme", "failures", "dev1", code=3).err
    assert acme.rows("ban", "list", "acme") == []
    assert "`iothub --data-dir" in acme("ban", "remove", "acme", "device", "dev1", code=3).err
    assert "--from goes with" in acme("ban", "remove", "acme", "device", "dev1", "--from", "192.0.2.7", code=2).err
    with AnsweringHub(acme.data_dir, refuse):
        acme("ban", "remove", "acme", "failures", "dev1", code=3)
