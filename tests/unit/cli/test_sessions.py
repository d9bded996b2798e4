"""Persistent sessions and their queues from the command line: told, and changed, by the running hub alone."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError, NotFoundError
from iothub.records.admin_commands import Json, Request, Verb, message_rows
from iothub.records.message import StoredMessage, encode_message
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli
from tests.support.in_process.query_answers import LAST, NOON_MS, QUEUE, SESSION


def body(payload: bytes) -> bytes:
    return encode_message(StoredMessage(b"a/b", payload, 1, False, b"", 0, b"", "c9"))


def hub(cli: Cli, rows: list[Json], result: Json) -> AnsweringHub:
    """A hub that answers every request with this."""
    return AnsweringHub(cli.data_dir, lambda _request: (rows, result))


def test_sessions_are_listed(acme: Cli) -> None:
    with hub(acme, [SESSION, {**SESSION, "client_id": "c2", "queue": None}], LAST) as running:
        rows = acme.rows("session", "list", "acme", "--after", "b", "--limit", "7")

    assert running.requests == [Request(Verb.SESSION_LIST, "acme", {"after": "b", "limit": 7})]
    assert [(row["name"], row["device"], row["queued_messages"]) for row in rows] == [
        ("c1", "dev1", 3),
        ("c2", "dev1", 0),
    ]
    assert (rows[0]["version"], rows[0]["expires"]) == ("5.0", "2027-01-15T09:00:00Z")


@pytest.mark.parametrize(("noun", "row"), [("session", SESSION), ("queue", {"client_id": "c1", **QUEUE})])
def test_list_that_ends_at_its_limit_says_how_to_go_on(acme: Cli, noun: str, row: Json) -> None:
    with hub(acme, [row], {"next": "c 1"}):
        cut = acme(noun, "list", "acme", "--limit", "1", "-o", "json")
    with hub(acme, [row], LAST):
        whole = acme(noun, "list", "acme")

    assert cut.err == "iothub: output truncated; continue with --after='c 1'\n"
    assert [each["name"] for each in cut.json] == ["c1"]
    assert whole.err == ""


def test_session_is_shown_with_its_subscriptions(acme: Cli) -> None:
    subscription: Json = {"group": "g", "filter": "a/#", "qos": 1, "no_local": False}
    with hub(acme, [subscription], SESSION):
        shown = acme("session", "show", "acme", "c1", "-o", "json").json
        lines = acme("session", "show", "acme", "c1").out.splitlines()

    assert shown["subscriptions"] == [{"name": "$share/g/a/#", "qos": 1, "no_local": False}]
    assert (shown["queue_id"], shown["queue_driver"], shown["session_expiry_s"]) == (1, "sqlite", 3600)
    assert (shown["disconnected"], shown["disconnect_reason"]) == ("2027-01-15T08:00:00Z", "client")
    assert lines[-3:] == ["subscriptions", "NAME          QOS  NO LOCAL", "$share/g/a/#  1    no"]


def test_connected_session_has_no_time_of_its_end(acme: Cli) -> None:
    """The record keeps one of its beginning, which is no answer to "since when is it away?"."""
    with hub(acme, [], {**SESSION, "is_connected": True}):
        shown = acme("session", "show", "acme", "c1", "-o", "json").json

    assert (shown["is_connected"], shown["connected"]) == (True, "2027-01-15T08:00:01Z")
    assert (shown["disconnected"], shown["disconnect_reason"], shown["expires"]) == (None, None, None)


def test_session_without_an_end_says_so(acme: Cli) -> None:
    """4294967295 is how the protocol writes it (§3.1.2.11.2)."""
    with hub(acme, [], {**SESSION, "session_expiry_s": 0xFFFFFFFF}):
        shown = acme("session", "show", "acme", "c1", "-o", "json").json

    assert (shown["session_expiry_s"], shown["expires"]) == ("never", None)


def test_queues_are_listed(acme: Cli) -> None:
    with hub(acme, [{"client_id": "c1", **QUEUE}], LAST):
        (row,) = acme.rows("queue", "list", "acme")
        header, line = acme("queue", "list", "acme").out.splitlines()

    assert row == {"name": "c1", **{name: value for name, value in QUEUE.items() if name != "limits"}}
    assert header.split() == ["NAME", "DRIVER", "MESSAGES", "BYTES", "HEAD", "TAIL"]
    assert line.split() == ["c1", "sqlite", "3", "120", "4", "7"]


def test_queue_is_shown_readably(acme: Cli) -> None:
    """One line per message, no limit is no figure, and a message that cannot be read says why."""
    rows = [
        *message_rows({"position": 5, "qos": 1, "expires_at_ms": 0}, body(b"one")),
        *message_rows({"position": 6, "qos": 0, "expires_at_ms": NOON_MS}, b"\7 damaged"),
    ]
    with hub(acme, rows, QUEUE) as running:
        shown = acme("queue", "show", "acme", "c1", "--messages", "2", "-o", "json").json
        lines = acme("queue", "show", "acme", "c1").out.splitlines()

    assert running.requests[0] == Request(Verb.QUEUE_SHOW, "acme", {"client_id": "c1", "messages": 2})
    assert shown["limits"] == {"messages": "unlimited", "bytes": 5, "overflow": "drop-qos0-first"}
    first, second = shown["oldest"]
    assert (first["position"], first["payload"], first["payload_bytes"], first["expires"]) == (5, "one", 3, None)
    assert (second["position"], second["expires"]) == (6, "2027-01-15T08:00:00Z")
    assert second["problem"].startswith("damaged message")
    assert lines[-4:-2] == ["oldest messages", "POSITION  TOPIC  QOS  BYTES  EXPIRES               PAYLOAD"]
    assert lines[-2].split() == ["5", "a/b", "1", "3", "-", "one"]


def test_session_is_discarded_by_the_hubs(acme: Cli) -> None:
    with hub(acme, [], SESSION) as running:
        would = acme("session", "discard", "acme", "c1", "--dry-run")
        result = acme("session", "discard", "acme", "c1", "--yes", "-o", "json")

    assert would.err == "would discard session c1 with 3 queued messages\n"
    assert result.json == {"name": "c1", "tenant": "acme", "is_discarded": True}
    asked = [Request(verb, "acme", {"client_id": "c1"}) for verb in (Verb.SESSION_SHOW, Verb.SESSION_DISCARD)]
    assert running.requests == asked


def test_queue_is_purged_by_the_hubs(acme: Cli) -> None:
    with hub(acme, [], QUEUE) as running:
        would = acme("queue", "purge", "acme", "c1", "--dry-run")
        result = acme("queue", "purge", "acme", "c1", "--yes", "-o", "json")

    assert would.err == "would remove 3 messages\n"
    assert result.json == {"name": "c1", "messages": 3, "is_purged": True}
    assert running.requests == [
        Request(Verb.QUEUE_SHOW, "acme", {"client_id": "c1", "messages": 0}),
        Request(Verb.QUEUE_PURGE, "acme", {"client_id": "c1"}),
    ]


@pytest.mark.parametrize(("error", "code"), [(NotFoundError("no such"), 3), (BackendError("down", retryable=True), 7)])
def test_refusal_of_the_hub_keeps_its_text_and_exit_code(acme: Cli, error: BackendError, code: int) -> None:
    def refuse(_request: Request) -> tuple[list[Json], Json]:
        raise error

    with AnsweringHub(acme.data_dir, refuse):
        for words in (("session", "list"), ("session", "show", "c3"), ("queue", "purge", "c3", "--yes")):
            noun, verb, *rest = words
            assert acme(noun, verb, "acme", *rest, code=code).err == f"iothub: {error}\n"
