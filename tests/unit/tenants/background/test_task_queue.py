"""Who asks for something that has to wait goes on without it, after a moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from iothub.base.errors import BackendError
from iothub_tenants.background.task_queue import TaskQueue


def ask(task_queue: TaskQueue, task: Callable[[], Awaitable[object]], told: list[str]) -> None:
    Deferred.fromCoroutine(task_queue.run_task(task)).addCallback(lambda _: told.append("went on"))


def test_asker_waits_for_what_is_quick() -> None:
    """No timer is left behind."""
    clock, told = Clock(), list[str]()

    async def task() -> None:
        told.append("done")

    ask(TaskQueue("jobs", clock.callLater, 0.5), task, told)

    assert told == ["done", "went on"]
    assert clock.getDelayedCalls() == []


def test_asker_goes_on_without_what_takes_long_and_it_is_done_all_the_same() -> None:
    """In the order in which it was asked for, one after another."""
    clock, told, gate = Clock(), list[str](), Deferred[None]()

    async def slow() -> None:
        await gate
        told.append("slow")

    async def next_one() -> None:
        told.append("next")

    task_queue = TaskQueue("jobs", clock.callLater, 0.5)
    ask(task_queue, slow, told)
    ask(task_queue, next_one, told)
    assert (told, task_queue.is_busy) == ([], True)
    clock.advance(0.5)
    assert told == ["went on", "went on"]

    gate.callback(None)

    assert told == ["went on", "went on", "slow", "next"]
    assert not task_queue.is_busy


@pytest.mark.parametrize("error", [BackendError("disk full", retryable=True), ZeroDivisionError()])
def test_job_that_fails_stops_no_other(error: Exception) -> None:
    told: list[str] = []

    async def fail() -> None:
        raise error

    async def task() -> None:
        told.append("done")

    task_queue = TaskQueue("jobs", Clock().callLater, 0.5)
    ask(task_queue, fail, told)
    ask(task_queue, task, told)

    assert told == ["went on", "done", "went on"]
