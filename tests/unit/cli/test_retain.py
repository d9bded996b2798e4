"""Retained messages from the command line: told, and deleted, by the running hub alone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from iothub.base.errors import ConfigError
from iothub.cli.progress import Progress
from iothub.net import admin_frames
from iothub.net.admin_frames import FrameDecoder
from iothub.records.admin_commands import Json, Request, Verb, message_rows
from iothub.records.message import StoredMessage, encode_message
from tests.support.in_process.answering import AnsweringHub, Answers
from tests.support.in_process.command import Cli

COUNTED = 2
TOPICS: list[Json] = [
    {"name": "a/1", "bytes": 3, "version": 1, "expires_at_ms": 0},
    {"name": "b\x1b[31m", "bytes": 4, "version": 2, "expires_at_ms": 1_800_000_000_000},
]


def topics(request: Request) -> tuple[list[Json], Json]:
    """Two topics, which match every filter but "no/such"."""
    if request.verb == Verb.RETAIN_COUNT:
        return [], {"messages": 0 if "no/" in str(request.argument["filter"]) else COUNTED}
    return TOPICS, {"next": "b\x1b[31m"}


def shown(topic: str, payload: bytes) -> Callable[[Request], tuple[list[Json], Json]]:
    record = encode_message(StoredMessage(topic.encode(), payload, 1, True, b"", 0, b"", "c1"))
    return lambda _request: (list(message_rows({}, record)), {"version": 5})


def deleting(cli: Cli, answer: Answers = topics) -> AnsweringHub:
    """A hub that tells of two messages, and deletes with `answer`."""
    return AnsweringHub(
        cli.data_dir, lambda request: answer(request) if request.verb == Verb.RETAIN_DELETE else topics(request)
    )


def test_topics_are_listed(acme: Cli) -> None:
    with deleting(acme) as hub:
        result = acme("retain", "list", "acme", "--filter", "a/+", "--limit", "2", "--after", "a", "-o", "json")

    assert hub.requests == [Request(Verb.RETAIN_LIST, "acme", {"filter": "a/+", "after": "a", "limit": 2})]
    assert result.json == [
        {"name": "a/1", "bytes": 3, "version": 1, "expires": None},
        {"name": "b\x1b[31m", "bytes": 4, "version": 2, "expires": "2027-01-15T08:00:00Z"},
    ]


def test_hostile_topic_does_not_reach_the_terminal(acme: Cli) -> None:
    with deleting(acme):
        result = acme("retain", "list", "acme")

    assert "\x1b" not in result.out + result.err
    assert "b\\x1b[31m" in result.out


def test_message_is_shown_as_text_or_base64(acme: Cli) -> None:
    with AnsweringHub(acme.data_dir, shown("a/1", b"one")) as hub:
        text = acme("retain", "show", "acme", "a/1", "-o", "json").json
        assert acme("retain", "show", "acme", "a/1", "--raw").out == "one"
    with AnsweringHub(acme.data_dir, shown("a/2", b"\xff\x00")):
        octets = acme("retain", "show", "acme", "a/2", "-o", "json").json

    assert hub.requests[0] == Request(Verb.RETAIN_SHOW, "acme", {"topic": "a/1"})
    assert (text["name"], text["payload"], text["qos"], text["publisher_client_id"]) == ("a/1", "one", 1, "c1")
    assert (octets["payload_base64"], octets["version"]) == ("/wA=", 5)


def test_deletion_asks_for_what_it_would_delete(acme: Cli) -> None:
    with deleting(acme) as hub:
        would = acme("retain", "delete", "acme", "--filter", "a/#", "--dry-run", "-o", "json").json

    assert would == {"name": "a/#", "messages": 2, "is_deleted": False}
    assert hub.requests == [Request(Verb.RETAIN_COUNT, "acme", {"filter": "a/#"})]


def test_deletion_of_a_missing_message_is_not_found(acme: Cli) -> None:
    """As everywhere; a filter that matches nothing has done what it should."""
    with deleting(acme, lambda _request: ([], {"messages": 0})):
        for words in (("no/such",), ("no/such", "--dry-run"), ("--filter", "no/such")):
            assert "no retained message on 'no/such'" in acme("retain", "delete", "acme", *words, "--yes", code=3).err
        assert acme("retain", "delete", "acme", "no/+", "--yes").err == "deleted 0 retained messages\n"


def test_deletion_of_nothing_is_a_mistake(acme: Cli) -> None:
    acme("retain", "delete", "acme", "--yes", code=2)
    acme("retain", "delete", "acme", "a", "--filter", "b", "--yes", code=2)


def test_hubs_delete(acme: Cli) -> None:
    with deleting(acme, lambda _request: ([], {"messages": 2})) as hub:
        result = acme("retain", "delete", "acme", "a/+", "--yes", "-o", "json")

    assert result.json["messages"] == 2
    assert hub.requests[1:] == [Request(Verb.RETAIN_DELETE, "acme", {"filter": "a/+"})]


UNANSWERED = {"unanswered": [{"hub": "b (2)", "reason": "no answer within 8 s"}]}


@pytest.mark.parametrize("messages", [2, 0])
def test_hub_that_did_not_answer_is_named_after_what_the_others_did(acme: Cli, messages: int) -> None:
    """Not even "no such message" is certain then."""
    with deleting(acme, lambda _request: ([], {"messages": messages, **UNANSWERED})):
        result = acme("retain", "delete", "acme", "a/1", "--yes", code=7)

    assert result.err.splitlines()[:2] == [
        f"deleted {messages} retained messages",
        "iothub: hub b (2) did not answer: no answer within 8 s",
    ]
    assert "run the same command with their data directories" in result.err.splitlines()[2]


def test_progress_of_all_hubs_is_added_up(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    progress: list[Json] = [
        {"node": 1, "done": 256, "total": 1000},
        {"node": 2, "done": 100, "total": 500},
        {"node": 1, "done": 512, "total": 1000},
    ]
    monkeypatch.setattr("iothub.cli.progress.LOG_INTERVAL_S", 0.0)
    with deleting(acme, lambda _request: (progress, {"messages": 1000})):
        result = acme("retain", "delete", "acme", "a/+", "--yes", "--timeout", "1m")

    assert result.err.startswith("612 of 1500 retained messages deleted, ")
    assert result.err.endswith("deleted 1000 retained messages\n")


def exchange(_hub: AnsweringHub, connection: socket.socket, _asked: Answers) -> None:
    """Tell how far the deletion is, and nothing more."""
    decoder, frames = FrameDecoder(), list[Json]()
    while len(frames) < 2:
        frames += decoder.feed(connection.recv(65_536))
    request = admin_frames.request_in(frames[1])
    rows, result = topics(request)
    if request.verb == Verb.RETAIN_COUNT:
        said = b"".join(admin_frames.row_frames(rows)) + admin_frames.result_frame(result)
    else:
        said = b"".join(admin_frames.row_frames([{"node": 1, "done": 256, "total": 1000}]))
    connection.sendall(admin_frames.hello() + said)
    connection.recv(1)  # until the asker leaves


@pytest.fixture
def hanging(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hub that does not finish."""
    monkeypatch.setattr(AnsweringHub, "_exchange", exchange)
    with deleting(acme):
        yield


@pytest.mark.usefixtures("hanging")
def test_own_patience_ends_the_waiting_for_a_hub(acme: Cli) -> None:
    result = acme("retain", "delete", "acme", "a/+", "--yes", "--timeout", "50ms", code=7)

    assert "no answer within 1 s: the hub has not finished the command" in result.err
    assert "and continues it; see `iothub --data-dir" in result.err


@pytest.mark.usefixtures("hanging")
def test_hub_that_reports_nothing_more_is_unavailable(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iothub.cli.app.COMMAND_TIMEOUT_S", 0.5)

    result = acme("retain", "delete", "acme", "a/+", "--yes", code=7)

    assert "the hub has not finished the command (256 of 1000), and continues it" in result.err


@pytest.mark.usefixtures("hanging")
def test_interrupted_deletion_goes_on_in_the_hub(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, with how far it was."""

    def interrupt(_progress: Progress, _done: int, _of: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "__call__", interrupt)

    result = acme("retain", "delete", "acme", "a/+", "--yes", code=130)

    assert result.err == (
        "iothub: interrupted: the hub has not finished the command (256 of 1000), and continues it; "
        "run it again to see whether it is done\n"
    )


def test_refusal_of_the_hub_keeps_its_exit_code(acme: Cli) -> None:
    def refuse(_request: Request) -> tuple[list[Json], Json]:
        raise ConfigError("this hub does not know the request")

    with deleting(acme, refuse):
        result = acme("retain", "delete", "acme", "a/+", "--yes", code=2)

    assert result.err == "iothub: this hub does not know the request\n"
