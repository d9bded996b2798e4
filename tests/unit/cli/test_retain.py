"""Retained messages from the command line: read beside a hub, deleted by it, or here when none runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from iothub.base.clock import SystemClock
from iothub.base.errors import ConfigError
from iothub.cli.progress import Progress
from iothub.config.datadir import DataDir
from iothub.records.message import StoredMessage, encode_message
from iothub_services.retained.port import RetainedWrite
from iothub_services.retained.sqlite.store import SCHEMA, SqliteRetained
from iothub_services.sqlite.database import open_database
from iothub_tenants.accounts import commands
from iothub_tenants.accounts.commands import Command, Json
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.answering import AnsweringHub
from tests.support.command import Cli


def body(topic: str, payload: bytes) -> bytes:
    return encode_message(StoredMessage(topic.encode(), payload, 1, True, b"", 0, b"", "c1"))


@pytest.fixture
def kept(acme: Cli) -> Cli:
    """Four retained messages of `acme`, one of another tenant."""
    acme("tenant", "create", "zeta")
    ids = {row["name"]: row["id"] for row in acme.rows("tenant", "list")}
    database = open_database(DataDir(acme.data_dir).retained, SCHEMA, SystemClock(), lambda *_: None)
    with closing(SqliteRetained(database)) as store:
        for topic, payload in (("a/1", b"one"), ("a/2", b"\xff\x00"), ("b\x1b[31m", b"red"), ("$SYS/x", b"0")):
            store.put([RetainedWrite(ids["acme"], topic.encode(), body(topic, payload))])
        store.put([RetainedWrite(ids["zeta"], b"a/1", body("a/1", b"other"))])
    return acme


def names(cli: Cli, *words: str) -> list[str]:
    return [row["name"] for row in cli.rows("retain", "list", "acme", *words)]


def test_topics_are_listed_in_order(kept: Cli) -> None:
    assert names(kept) == ["$SYS/x", "a/1", "a/2", "b\x1b[31m"]
    assert names(kept, "--filter", "a/+") == ["a/1", "a/2"]
    assert names(kept, "--limit", "1", "--after", "a/1") == ["a/2"]


def test_list_that_ends_at_its_limit_says_how_to_go_on(kept: Cli) -> None:
    assert "go on with --after=a/1" in kept("retain", "list", "acme", "--limit", "2").err
    assert "--limit" not in kept("retain", "list", "acme", "--limit", "4").err


def test_hostile_topic_does_not_reach_the_terminal(kept: Cli) -> None:
    assert "\x1b" not in kept("retain", "list", "acme").out
    assert "b\\x1b[31m" in kept("retain", "list", "acme").out


def test_message_is_shown_as_text_or_base64(kept: Cli) -> None:
    text = kept("retain", "show", "acme", "a/1", "-o", "json").json
    octets = kept("retain", "show", "acme", "a/2", "-o", "json").json

    assert (text["name"], text["payload"], text["qos"], text["publisher_client_id"]) == ("a/1", "one", 1, "c1")
    assert octets["payload_base64"] == "/wA="
    assert kept("retain", "show", "acme", "a/1", "--raw").out == "one"


def test_damaged_message_is_listed_refused_by_name_and_can_be_deleted(kept: Cli) -> None:
    database = open_database(DataDir(kept.data_dir).retained, SCHEMA, SystemClock(), lambda *_: None)
    with closing(SqliteRetained(database)) as store:
        store.put([RetainedWrite(int(kept("tenant", "show", "acme", "-o", "json").json["id"]), b"a/1", b"\x01" * 60)])

    assert names(kept) == ["$SYS/x", "a/1", "a/2", "b\x1b[31m"]
    assert "damaged message: the checksum differs" in kept("retain", "show", "acme", "a/1", code=1).err
    assert "deleted 1 retained message" in kept("retain", "delete", "acme", "a/1", "--yes").err
    assert "a/1" not in names(kept)


def test_missing_message_is_not_found(kept: Cli) -> None:
    kept("retain", "show", "acme", "no/such", code=3)
    kept("retain", "show", "zeta", "a/2", code=3)


def test_tenant_without_messages_has_an_empty_list(acme: Cli) -> None:
    """Also before the hub has made the store."""
    assert names(acme) == []
    assert acme("retain", "delete", "acme", "x/#", "-o", "json").json["messages"] == 0


def test_messages_are_deleted_here_when_no_hub_runs(kept: Cli) -> None:
    assert kept("retain", "delete", "acme", "--filter", "a/#", "--dry-run", "-o", "json").json["messages"] == 2
    assert kept("retain", "delete", "acme", "a/1", "-o", "json").json["messages"] == 1

    assert names(kept) == ["$SYS/x", "a/2", "b\x1b[31m"]
    assert [row["name"] for row in kept.rows("retain", "list", "zeta")] == ["a/1"]
    assert kept("retain", "delete", "acme", "#", "-o", "json").json["messages"] == 2
    assert names(kept) == ["$SYS/x"]


def test_deletion_of_a_missing_message_is_not_found(kept: Cli) -> None:
    """As everywhere; a filter that matches nothing has done what it should."""
    for words in (("no/such",), ("no/such", "--dry-run"), ("--filter", "no/such")):
        assert "no retained message on 'no/such'" in kept("retain", "delete", "acme", *words, code=3).err
    assert kept("retain", "delete", "acme", "no/+").err == "deleted 0 retained messages\n"
    assert kept("retain", "delete", "acme", "a/1", "--dry-run").err == "would delete 1 retained message\n"
    assert kept("retain", "delete", "acme", "a/1").err == "deleted 1 retained message\n"
    with AnsweringHub(kept.data_dir, lambda _command: {"messages": 0}):
        kept("retain", "delete", "acme", "a/1", code=3)


@pytest.mark.parametrize("wrong", ["a#", "#/a", "", "a+/b", "$share/g/a"])
def test_bad_filter_is_a_mistake(kept: Cli, wrong: str) -> None:
    kept("retain", "delete", "acme", wrong, code=2)
    assert len(names(kept)) == 4


def test_running_hub_deletes(kept: Cli) -> None:
    """Under a running hub the command table is used; its cache must not disagree with the store."""
    with AnsweringHub(kept.data_dir, lambda _command: {"messages": 2}) as hub:
        result = kept("retain", "delete", "acme", "a/+", "-o", "json")

    assert result.json["messages"] == 2
    assert hub.seen == [("acme", "retain.delete", {"filter": "a/+"})]
    assert len(names(kept)) == 4


def test_running_hub_tells_how_far_it_is(kept: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command waits on, longer than it would for a silent hub, and says so."""
    heard = threading.Event()
    store = AccountStore(sqlite_url(DataDir(kept.data_dir).accounts))

    class Told(Progress):
        def __call__(self, done: int, of: int) -> None:
            super().__call__(done, of)
            heard.set()

    def delete(command: Command) -> Json:
        commands.progress(store, command.id, {"done": 256, "total": 1000})
        assert heard.wait(10)
        return {"messages": 1000}

    monkeypatch.setattr("iothub.cli.progress.LOG_INTERVAL_S", 0.0)
    monkeypatch.setattr("iothub.cli.retain.Progress", Told)
    with AnsweringHub(kept.data_dir, delete):
        result = kept("retain", "delete", "acme", "a/+", "--timeout", "1m")
    store.close()

    assert result.err.startswith("256 of 1000 retained messages are deleted, ")
    assert result.err.endswith("deleted 1000 retained messages\n")


def test_own_patience_ends_the_waiting_for_a_hub(kept: Cli) -> None:
    with AnsweringHub(kept.data_dir, None):
        assert "no answer within 1 s" in kept("retain", "delete", "acme", "a/+", "--timeout", "50ms", code=7).err


def test_lists_are_read_beside_a_running_hub(kept: Cli) -> None:
    with AnsweringHub(kept.data_dir, None):
        assert names(kept, "--filter", "a/1") == ["a/1"]


def test_refusal_of_the_hub_keeps_its_exit_code(kept: Cli) -> None:
    def refuse(_command: object) -> dict[str, object]:
        raise ConfigError("this hub does not know the command")

    with AnsweringHub(kept.data_dir, refuse):
        result = kept("retain", "delete", "acme", "a/+", code=2)

    assert result.err == "iothub: this hub does not know the command\n"


def test_hub_that_does_not_answer_is_unavailable(
    kept: Cli, monkeypatch: pytest.MonkeyPatch, call: Callable[..., object]
) -> None:
    """Exit code 7, and the withdrawn command is not done later."""
    monkeypatch.setattr("iothub.cli.app.COMMAND_TIMEOUT_S", 0.05)
    with AnsweringHub(kept.data_dir, None):
        result = kept("retain", "delete", "acme", "a/+", code=7)

    assert "no hub took the command" in result.err
    with AnsweringHub(kept.data_dir, lambda _command: {}) as hub:
        kept("status", code=0)
    assert [verb for _, verb, _ in hub.seen] == ["ping"]
