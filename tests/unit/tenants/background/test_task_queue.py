"""Who asks for something that has to wait goes on without it, after a moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from iothub.base.errors import BackendError
from iothub_tenants.background.task_queue import TaskQueue


def ask(task_queue: TaskQueue, task: Callable[[], Awaitable[object]], recorded: list[str]) -> None:
    Deferred.fromCoroutine(task_queue.run_task(task)).addCallback(lambda _: recorded.append("went on"))


def test_asker_waits_for_what_is_quick() -> None:
    """No timer is left behind."""
    clock, recorded = Clock(), list[str]()

    async def task() -> None:
        recorded.append("done")

    ask(TaskQueue("jobs", clock.callLater, 0.5), task, recorded)

    assert recorded == ["done", "went on"]
    assert clock.getDelayedCalls() == []


def test_asker_goes_on_without_what_takes_long_and_it_is_done_all_the_same() -> None:
    """In the order in which it was asked for, one after another."""
    clock, recorded, gate = Clock(), list[str](), Deferred[None]()

    async def slow() -> None:
        await gate
        recorded.append("slow")

    async def next_one() -> None:
        recorded.append("next")

    task_queue = TaskQueue("jobs", clock.callLater, 0.5)
    ask(task_queue, slow, recorded)
    ask(task_queue, next_one, recorded)
    assert (recorded, task_queue.is_busy) == ([], True)
    clock.advance(0.5)
    assert recorded == ["went on", "went on"]

    gate.callback(None)

    assert recorded == ["went on", "went on", "slow", "next"]
    assert not task_queue.is_busy


@pytest.mark.parametrize("error", [BackendError("disk full", retryable=True), ZeroDivisionError()])
def test_job_that_fails_stops_no_other(error: Exception) -> None:
    recorded: list[str] = []

    async def fail() -> None:
        raise error

    async def task() -> None:
        recorded.append("done")

    task_queue = TaskQueue("jobs", Clock().callLater, 0.5)
    ask(task_queue, fail, recorded)
    ask(task_queue, task, recorded)

    assert recorded == ["went on", "done", "went on"]
