"""Waiting for servers at the start: until each answers, with a reason that can be seen, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from iothub.base.errors import BackendError, ConflictError, UnavailableError
from iothub.hub.stores.wait_for_servers import PAUSE_S, Waiting

T = TypeVar("T")


class Harness:
    """Servers that answer after some attempts, and the pauses between those."""

    def __init__(self, *, is_fail_fast: bool = False) -> None:
        self.changes: list[str] = []
        self.waiting = Waiting(self.run, self.pause, is_fail_fast=is_fail_fast, on_reason=self.changes.append)
        self.pauses: list[float] = []
        self.asked: list[str] = []
        self.reasons: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def run(self, what: str, function: Callable[[], T], /) -> T:
        assert what == "housekeeping.ask"
        self.asked.append(self.waiting.reason)
        return function()

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.reasons.append(self.waiting.reason)
        self.meanwhile()

    def wait(self, **servers: Callable[[], None]) -> None:
        with pytest.raises(StopIteration):
            self.waiting.until_all_answer(servers).send(None)


def down(times: int, error: Exception | None = None) -> Callable[[], None]:
    left = [error or BackendError("it is down", retryable=True)] * times

    def ask() -> None:
        if left:
            raise left.pop()

    return ask


def test_start_goes_on_at_once_when_everybody_answers() -> None:
    harness = Harness()
    harness.wait(Kafka=down(0), HBase=down(0))

    assert harness.pauses == []
    assert harness.waiting.reason == ""


def test_reason_is_there_before_the_first_answer() -> None:
    """A server that is paused is silent for ten seconds."""
    harness = Harness()
    harness.wait(Kafka=down(0), HBase=down(1))

    assert harness.asked == [
        "waiting for Kafka: no answer yet",
        "waiting for HBase: no answer yet",
        "waiting for HBase: it is down",
    ]


def test_reason_names_every_server_that_is_waited_for() -> None:
    """All that are known to be down; who has answered is not asked again, and afterwards there is none."""
    harness = Harness()
    harness.wait(Kafka=down(2), HBase=down(1), Redis=down(0))

    assert harness.reasons == [
        "waiting for Kafka: it is down; waiting for HBase: it is down",
        "waiting for Kafka: it is down",
    ]
    assert harness.pauses == [PAUSE_S] * 2
    assert len(harness.asked) == 3 + 2 + 1
    assert (harness.waiting.reason, harness.changes[0], harness.changes[-1]) == (
        "",
        "waiting for Kafka: no answer yet",
        "",
    )


def test_what_is_waited_for_beside_servers_is_said_until_one_of_those_fails() -> None:
    harness = Harness()
    harness.waiting.note("another hub")
    assert (harness.waiting.reason, harness.changes) == ("another hub", ["another hub"])

    harness.meanwhile = lambda: harness.waiting.note("another hub")
    harness.wait(Kafka=down(1))

    assert harness.reasons == ["waiting for Kafka: it is down"]


def test_hub_that_is_not_to_wait_fails_at_once() -> None:
    """With the exit code for what is not available."""
    harness = Harness(is_fail_fast=True)
    with pytest.raises(UnavailableError, match="it is down") as caught:
        harness.waiting.until_all_answer({"Kafka": down(1)}).send(None)

    assert caught.value.exit_code == 7
    assert harness.pauses == []


def test_refusal_is_not_waited_for() -> None:
    """No repetition changes it."""
    harness = Harness()
    with pytest.raises(ConflictError):
        harness.waiting.until_all_answer({"Kafka": down(1, ConflictError("topic has 3 partitions"))}).send(None)


def test_server_that_the_hub_lets_go_of_at_its_end_is_no_news() -> None:
    """A stop while the start waits: nothing is asked again."""
    harness = Harness()
    harness.waiting.end()

    with capture_logs() as lines, pytest.raises(BackendError, match="closed"):
        harness.wait(HBase=down(1, BackendError("HBase's client is closed", retryable=True)))

    assert lines == []
    assert harness.pauses == []


def loading(times: int, error: Exception | None = None) -> Callable[[], Awaitable[str]]:
    """A piece of work that fails as `down` does."""
    ask = down(times, error)

    async def work() -> str:
        ask()
        return "loaded"

    return work


def test_work_is_done_again_until_its_servers_answer() -> None:
    """A server that dies in the middle of the loading: the reason says which one and why, and is gone afterwards."""
    harness = Harness()
    with pytest.raises(StopIteration) as done:
        harness.waiting.until_loaded("HBase and Kafka", loading(2)).send(None)

    assert done.value.value == "loaded"
    assert harness.reasons == ["waiting for HBase and Kafka: it is down"] * 2
    assert (harness.waiting.reason, harness.pauses) == ("", [PAUSE_S] * 2)


def test_start_is_held_up_while_a_server_fails() -> None:
    """Not before its first answer, and not afterwards."""
    harness, held_up = Harness(), list[bool]()
    ask = down(1)

    async def work() -> None:
        held_up.append(harness.waiting.is_held_up)
        ask()

    with pytest.raises(StopIteration):
        harness.waiting.until_loaded("HBase", work).send(None)

    assert (held_up, harness.waiting.is_held_up) == ([False, True], False)


def test_what_is_refused_for_good_is_not_asked_again() -> None:
    """Neither a first question nor a piece of work; nor anything in a hub that is not to wait."""
    refused = BackendError("HBase refused getRow: TableNotFoundException", retryable=False)
    for harness, error in ((Harness(), refused), (Harness(is_fail_fast=True), None)):
        for waiting in (
            harness.waiting.until_loaded("HBase", loading(1, error)),
            harness.waiting.until_all_answer({"HBase": down(1, error)}),
        ):
            with pytest.raises(BackendError):
                waiting.send(None)
        assert harness.pauses == []


def test_end_of_the_hub_ends_a_wait() -> None:
    """Whatever the server says afterwards, the start does not go on."""
    harness, attempts = Harness(), list[int]()

    async def work() -> None:
        attempts.append(1)
        raise BackendError("it is down", retryable=True)

    harness.meanwhile = harness.waiting.end
    with pytest.raises(BackendError, match="it is down"):
        harness.waiting.until_loaded("HBase", work).send(None)

    assert attempts == [1]
