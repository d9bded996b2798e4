"""Periodic tasks: each at its own interval, none twice at a time, and none stopped by another one's failure."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from iothub.base.errors import BackendError
from iothub_tenants.background.tasks import TaskRunner


@pytest.fixture
def reactor() -> Clock:
    return Clock()


@pytest.fixture
def tasks(reactor: Clock) -> TaskRunner:
    return TaskRunner(reactor.callLater)


def test_duty_is_done_in_its_rhythm(tasks: TaskRunner, reactor: Clock) -> None:
    done: list[float] = []

    async def note() -> None:
        done.append(reactor.seconds())

    tasks.add("note", 2.0, note)
    tasks.start()
    reactor.pump([1.0] * 6)

    assert done == [2.0, 4.0, 6.0]


def test_duty_that_takes_long_is_not_begun_again_meanwhile(tasks: TaskRunner, reactor: Clock) -> None:
    begun: list[Deferred[None]] = []

    async def wait() -> None:
        begun.append(Deferred())
        await begun[-1]

    tasks.add("wait", 1.0, wait)
    tasks.start()
    reactor.pump([1.0] * 5)
    assert len(begun) == 1

    begun[0].callback(None)
    reactor.pump([1.0])
    assert len(begun) == 2


def test_duty_that_is_wanted_at_once_is_not_done_twice_at_a_time(tasks: TaskRunner, reactor: Clock) -> None:
    """But once more after the one that is under way; its own rhythm goes on."""
    begun: list[Deferred[None]] = []

    async def wait() -> None:
        begun.append(Deferred())
        await begun[-1]

    tasks.add("other", 100.0, wait)
    tasks.add("wait", 2.0, wait)
    tasks.start()
    tasks.hurry("wait")
    assert len(begun) == 1
    tasks.hurry("wait")
    tasks.hurry("wait")
    reactor.pump([1.0] * 2)
    assert len(begun) == 1
    begun[0].callback(None)
    assert len(begun) == 2
    begun[1].callback(None)
    reactor.pump([1.0] * 2)
    assert len(begun) == 3
    begun[2].callback(None)

    tasks.stop()
    tasks.hurry("wait")
    assert len(begun) == 3


@pytest.mark.parametrize("error", [BackendError("accounts.db: locked", retryable=True), ZeroDivisionError()])
def test_duty_that_fails_is_tried_again_and_stops_no_other(tasks: TaskRunner, reactor: Clock, error: Exception) -> None:
    tried: list[str] = []

    async def fail() -> None:
        tried.append("fail")
        raise error

    async def work() -> None:
        tried.append("work")

    tasks.add("fail", 1.0, fail)
    tasks.add("work", 1.0, work)
    tasks.start()
    reactor.pump([1.0, 1.0])

    assert sorted(tried) == ["fail", "fail", "work", "work"]


def test_nothing_is_begun_after_the_stop(tasks: TaskRunner, reactor: Clock) -> None:
    tasks.add("never", 1.0, lambda: pytest.fail("was begun"))
    tasks.start()
    tasks.stop()
    reactor.pump([1.0, 1.0])

    assert reactor.getDelayedCalls() == []


def test_duty_that_takes_long_is_told_that_the_hub_stops(tasks: TaskRunner, reactor: Clock) -> None:
    recorded: list[str] = []

    async def wait() -> None:
        await Deferred()

    tasks.add("long", 2.0, wait, lambda: recorded.append("end"))
    tasks.start()
    reactor.advance(2.0)
    tasks.stop()

    assert recorded == ["end"]
