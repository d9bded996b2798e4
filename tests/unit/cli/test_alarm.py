"""`iothub alarm`: what is raised at the hubs, and what to do."""

from __future__ import annotations

from iothub.records.admin_commands import Json, Request, Verb
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli

NOON_S = 1_800_000_000.25


def alarm(node: int, since: float, name: str = "disk_low") -> Json:
    said = {"severity": "warning", "subject": "queues", "detail": "1 MiB free", "advice": "Free disk space."}
    return {"node": node, "name": name, "since": since, **said}


def hub(cli: Cli, *rows: Json, result: Json | None = None) -> AnsweringHub:
    return AnsweringHub(cli.data_dir, lambda _request: (rows, result or {}))


def test_alarms_of_all_hubs_are_listed_the_oldest_first(cli: Cli) -> None:
    with hub(cli, alarm(1, NOON_S), alarm(0, NOON_S - 60)) as running:
        rows = cli.rows("alarm", "list")
        table = cli("alarm", "list").out

    assert running.requests[0] == Request(Verb.ALARM_LIST, "", {})
    assert [row["node"] for row in rows] == [0, 1]
    assert rows[1] == {**alarm(1, NOON_S), "since": "2027-01-15T08:00:00Z"}
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [["0,", "1"]]  # what both say alike is one line


def test_hub_that_does_not_answer_is_named(cli: Cli) -> None:
    """The alarms of the others are listed all the same."""
    silent = {"unanswered": [{"hub": "hub-2 (2)", "reason": "there is no link to it"}]}
    with hub(cli, alarm(0, NOON_S), result=silent):
        result = cli("alarm", "list", code=7)

    assert "disk_low" in result.out
    assert "hub hub-2 (2) did not answer" in result.err


def test_alarm_is_shown_with_what_to_do(cli: Cli) -> None:
    with hub(cli, alarm(0, NOON_S), alarm(1, NOON_S), alarm(0, NOON_S, "overload")):
        record = cli.rows("alarm", "show", "disk_low")
        table = cli("alarm", "show", "disk_low").out

    assert record["advice"] == "Free disk space under the data directory."
    assert [row["node"] for row in record["raised"]] == [0, 1]
    assert "1 MiB free" in table


def test_alarm_is_shown_without_a_hub(cli: Cli) -> None:
    result = cli("alarm", "show", "disk_low", "-o", "json")

    assert (result.json["severity"], result.json["raised"]) == ("warning", None)
    assert "no hub runs here" in result.err
    assert "no hub runs" in cli("alarm", "list", code=7).err


def test_unknown_alarm_names_the_near_one(cli: Cli) -> None:
    assert "did you mean disk_low?" in cli("alarm", "show", "disk_lo", code=3).err
    assert "expected one of accounts_unreachable, " in cli("alarm", "show", "zzz", code=3).err
