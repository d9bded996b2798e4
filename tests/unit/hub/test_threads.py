"""Pools of threads: bounded, in order, answers and failures on the reactor's side, and an end that waits."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from queue import Queue
from typing import Any

import pytest
from structlog.testing import capture_logs
from twisted.python.failure import Failure

from iothub.base.errors import UnavailableError
from iothub_services.threads import Threads


class Reactor:
    """Keeps what other threads hand over until the test takes it."""

    def __init__(self) -> None:
        self.handed: Queue[tuple[Callable[..., None], tuple[Any, ...]]] = Queue()

    def callFromThread(self, call: Callable[..., None], *args: Any) -> None:
        self.handed.put((call, args))

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            call, args = self.handed.get(timeout=10)
            call(*args)


def answers_of(answer: Any) -> list[Any]:
    found: list[Any] = []
    answer.addBoth(found.append)
    return found


def test_threads_make_a_call_and_answer_on_the_reactors_side() -> None:
    """With its arguments, in a thread of the pool that its name says."""
    reactor = Reactor()
    threads = Threads(reactor, {"accounts": 1})  # type: ignore[arg-type]
    threads.start()
    found = answers_of(threads.run("accounts.tenant", lambda a, b: (a, b, threading.current_thread().name), 1, b=2))

    assert found == []
    reactor.take()
    threads.stop()

    assert found == [(1, 2, "iothub-accounts-0")]


def test_threads_hand_a_failure_to_who_waits() -> None:
    """And go on with the next call."""
    reactor = Reactor()
    threads = Threads(reactor, {"a": 1})  # type: ignore[arg-type]
    threads.start()
    bad, good = answers_of(threads.run("a.x", lambda: 1 // 0)), answers_of(threads.run("a.x", lambda: 3))
    reactor.take(2)
    threads.stop()

    assert isinstance(bad[0], Failure)
    assert bad[0].check(ZeroDivisionError)
    assert good == [3]


def test_threads_are_no_more_than_the_pools_size() -> None:
    """What they cannot take on waits; a pool nobody uses has no thread."""
    reactor = Reactor()
    threads = Threads(reactor, {"a": 2, "b": 1})  # type: ignore[arg-type]
    threads.start()
    before, gate = threading.active_count(), threading.Event()
    found = [answers_of(threads.run("a.x", gate.wait, 10)) for _ in range(5)]

    assert threading.active_count() == before + 2
    gate.set()
    reactor.take(5)
    threads.stop()
    assert found == [[True]] * 5
    assert threading.active_count() == before


def test_threads_make_what_was_asked_before_the_start_then_and_nothing_after_the_end() -> None:
    reactor = Reactor()
    threads = Threads(reactor, {"a": 1})  # type: ignore[arg-type]
    early = answers_of(threads.run("a.x", lambda: 1))
    threads.start()
    reactor.take()
    threads.stop()
    late = answers_of(threads.run("a.x", lambda: 2))

    assert (early, late) == ([1], [])
    assert reactor.handed.empty()


def test_threads_that_hang_do_not_hold_up_the_end() -> None:
    """What they did is given up and said; the process can end without them."""
    reactor = Reactor()
    threads = Threads(reactor, {"a": 1, "b": 1})  # type: ignore[arg-type]
    threads.start()
    gate, is_running = threading.Event(), threading.Event()
    threads.run("a.x", lambda: (is_running.set(), gate.wait(10)))
    assert is_running.wait(10)

    with capture_logs() as lines:
        assert not threads.stop(0.01)

    assert [(line["pool"], line["threads"]) for line in lines] == [("a", 1)]
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "iothub-a-0"] == [True]
    gate.set()
    reactor.take()
    assert threads.stop()


def test_threads_answer_nobody_who_has_gone() -> None:
    """A cancelled wait has its answer already."""
    reactor = Reactor()
    threads = Threads(reactor, {"a": 1})  # type: ignore[arg-type]
    answer = threads.run("a.x", lambda: 1)
    found = answers_of(answer)
    answer.cancel()
    threads.start()
    reactor.take()
    threads.stop()

    assert len(found) == 1
    assert isinstance(found[0], Failure)


def test_threads_know_their_pools_by_name() -> None:
    """A call whose pool nobody declared is a defect."""
    with pytest.raises(KeyError):
        Threads(Reactor(), {"a": 1}).run("b.x", print)  # type: ignore[arg-type]


def test_threads_leave_no_cycles_of_garbage() -> None:
    """Thousands of devices that connect at once must not cost memory until the collector comes by."""
    reactor = Reactor()
    threads = Threads(reactor, {"a": 1})  # type: ignore[arg-type]
    threads.start()
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            threads.run("a.x", int, number)
        reactor.take(20)
        found = gc.collect()
    finally:
        gc.enable()
        threads.stop()

    assert found < 20


def test_threads_that_cannot_be_started_fail_the_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have no thread to give for a while (its limit of processes); the pool works on as soon as it has."""
    reactor = Reactor()
    threads = Threads(reactor, {"a": 2})  # type: ignore[arg-type]
    threads.start()

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", fail)
        with pytest.raises(UnavailableError, match="no thread can be started for a"):
            threads.run("a.x", lambda: 1)
    first = answers_of(threads.run("a.x", lambda: 2))
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", fail)
        second = answers_of(threads.run("a.x", lambda: 3))
    reactor.take(2)
    threads.stop()

    assert (first, second) == ([2], [3])
