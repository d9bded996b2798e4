"""Retained messages from the command line: told, and deleted, by the running hub alone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from iothub.base.errors import ConfigError
from iothub.cli.progress import Progress
from iothub.config.datadir import DataDir
from iothub.records.admin_commands import Json as Answer
from iothub.records.admin_commands import Query, Request, message_rows
from iothub.records.message import StoredMessage, encode_message
from iothub_tenants.accounts import commands
from iothub_tenants.accounts.commands import Command, Json
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.answering import AnsweringHub
from tests.support.command import Cli

COUNTED = 2
TOPICS: list[Answer] = [
    {"name": "a/1", "bytes": 3, "version": 1, "expires_at_ms": 0},
    {"name": "b\x1b[31m", "bytes": 4, "version": 2, "expires_at_ms": 1_800_000_000_000},
]


def topics(request: Request) -> tuple[list[Answer], Answer]:
    """Two topics, which match every filter but "no/such"."""
    if request.verb == Query.RETAIN_COUNT:
        return [], {"messages": 0 if "no/" in str(request.argument["filter"]) else COUNTED}
    return TOPICS, {"next": "b\x1b[31m"}


def shown(topic: str, payload: bytes) -> Callable[[Request], tuple[list[Answer], Answer]]:
    record = encode_message(StoredMessage(topic.encode(), payload, 1, True, b"", 0, b"", "c1"))
    return lambda _request: (list(message_rows({}, record)), {"version": 5})


def deleting(cli: Cli, answer: Callable[[Command], Json] | None) -> AnsweringHub:
    """A hub that tells of two messages, and answers commands with `answer`."""
    return AnsweringHub(cli.data_dir, answer, topics)


def test_topics_are_listed(acme: Cli) -> None:
    with deleting(acme, None) as hub:
        result = acme("retain", "list", "acme", "--filter", "a/+", "--limit", "2", "--after", "a", "-o", "json")

    assert hub.requests == [Request(Query.RETAIN_LIST, "acme", {"filter": "a/+", "after": "a", "limit": 2})]
    assert result.json == [
        {"name": "a/1", "bytes": 3, "version": 1, "expires": None},
        {"name": "b\x1b[31m", "bytes": 4, "version": 2, "expires": "2027-01-15T08:00:00Z"},
    ]


def test_hostile_topic_does_not_reach_the_terminal(acme: Cli) -> None:
    with deleting(acme, None):
        result = acme("retain", "list", "acme")

    assert "\x1b" not in result.out + result.err
    assert "b\\x1b[31m" in result.out


def test_message_is_shown_as_text_or_base64(acme: Cli) -> None:
    with AnsweringHub(acme.data_dir, None, shown("a/1", b"one")) as hub:
        text = acme("retain", "show", "acme", "a/1", "-o", "json").json
        assert acme("retain", "show", "acme", "a/1", "--raw").out == "one"
    with AnsweringHub(acme.data_dir, None, shown("a/2", b"\xff\x00")):
        octets = acme("retain", "show", "acme", "a/2", "-o", "json").json

    assert hub.requests[0] == Request(Query.RETAIN_SHOW, "acme", {"topic": "a/1"})
    assert (text["name"], text["payload"], text["qos"], text["publisher_client_id"]) == ("a/1", "one", 1, "c1")
    assert (octets["payload_base64"], octets["version"]) == ("/wA=", 5)


def test_deletion_asks_for_what_it_would_delete(acme: Cli) -> None:
    with deleting(acme, None) as hub:
        would = acme("retain", "delete", "acme", "--filter", "a/#", "--dry-run", "-o", "json").json

    assert would == {"name": "a/#", "messages": 2, "is_deleted": False}
    assert hub.requests == [Request(Query.RETAIN_COUNT, "acme", {"filter": "a/#"})]


def test_deletion_of_a_missing_message_is_not_found(acme: Cli) -> None:
    """As everywhere; a filter that matches nothing has done what it should."""
    with deleting(acme, lambda _command: {"messages": 0}):
        for words in (("no/such",), ("no/such", "--dry-run"), ("--filter", "no/such")):
            assert "no retained message on 'no/such'" in acme("retain", "delete", "acme", *words, "--yes", code=3).err
        assert acme("retain", "delete", "acme", "no/+", "--yes").err == "deleted 0 retained messages\n"


def test_deletion_of_nothing_is_a_mistake(acme: Cli) -> None:
    acme("retain", "delete", "acme", "--yes", code=2)
    acme("retain", "delete", "acme", "a", "--filter", "b", "--yes", code=2)


def test_hubs_delete(acme: Cli) -> None:
    """Through the command table: each hub of the accounts has an index, which must not disagree with the store."""
    with deleting(acme, lambda _command: {"messages": 2}) as hub:
        result = acme("retain", "delete", "acme", "a/+", "--yes", "-o", "json")

    assert result.json["messages"] == 2
    assert hub.seen == [("acme", "retain.delete", {"filter": "a/+"})]


def test_running_hub_tells_how_far_it_is(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command waits on, longer than it would for a silent hub, and says so."""
    heard = threading.Event()
    store = AccountStore(sqlite_url(DataDir(acme.data_dir).accounts))

    class SignalledProgress(Progress):
        def __call__(self, done: int, of: int) -> None:
            super().__call__(done, of)
            heard.set()

    def delete(command: Command) -> Json:
        commands.progress(store, command.id, {"done": 256, "total": 1000})
        assert heard.wait(10)
        return {"messages": 1000}

    monkeypatch.setattr("iothub.cli.progress.LOG_INTERVAL_S", 0.0)
    monkeypatch.setattr("iothub.cli.retain.Progress", SignalledProgress)
    with deleting(acme, delete):
        result = acme("retain", "delete", "acme", "a/+", "--yes", "--timeout", "1m")
    store.close()

    assert result.err.startswith("256 of 1000 retained messages deleted, ")
    assert result.err.endswith("deleted 1000 retained messages\n")


def test_own_patience_ends_the_waiting_for_a_hub(acme: Cli) -> None:
    with deleting(acme, None):
        assert (
            "no answer within 1 s" in acme("retain", "delete", "acme", "a/+", "--yes", "--timeout", "50ms", code=7).err
        )


def test_refusal_of_the_hub_keeps_its_exit_code(acme: Cli) -> None:
    def refuse(_command: object) -> dict[str, object]:
        raise ConfigError("this hub does not know the command")

    with deleting(acme, refuse):
        result = acme("retain", "delete", "acme", "a/+", "--yes", code=2)

    assert result.err == "iothub: this hub does not know the command\n"


def test_hub_that_does_not_answer_is_unavailable(
    acme: Cli, monkeypatch: pytest.MonkeyPatch, call: Callable[..., object]
) -> None:
    """Exit code 7, and the withdrawn command is not done later."""
    monkeypatch.setattr("iothub.cli.app.COMMAND_TIMEOUT_S", 0.05)
    with deleting(acme, None):
        result = acme("retain", "delete", "acme", "a/+", "--yes", code=7)

    assert "no hub took the command" in result.err
    with deleting(acme, lambda _command: {"ready": True}) as hub:
        acme("status", code=0)
    assert [verb for _, verb, _ in hub.seen] == ["ping"]
