"""Password checks: bounded, shared, remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub.testing.clock import ManualClock
from iothub_services.auth import passwords
from iothub_services.auth.check_pool import (
    FAILED_REPLY_S,
    Asker,
    CheckPool,
    CheckSettings,
    PoolFullError,
    TooManyGuessesError,
)
from iothub_services.auth.passwords import PasswordChecks


@dataclass
class Threads:
    """A pool whose calls run when the test says so."""

    calls: list[tuple[Callable[[], Any], Deferred[Any]]] = field(default_factory=list)

    def __call__(self, name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Deferred[Any]:
        assert name == "auth.password"
        answer: Deferred[Any] = Deferred()
        self.calls.append((lambda: call(*args, **kwargs), answer))
        return answer

    def finish(self) -> None:
        call, answer = self.calls.pop(0)
        answer.callback(call())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "verify_password", lambda password, stored: stored == f"is {password.decode()}")


@pytest.fixture
def threads() -> Threads:
    return Threads()


class Harness:
    """Password checks and the pool behind them."""

    def __init__(self, threads: Threads, **settings: Any) -> None:
        self.pool = CheckPool(threads, ManualClock(), CheckSettings(**settings))
        self.checks = PasswordChecks(self.pool)


def begin(harness: Harness, tenant_id: int, device: str, stored: str, password: bytes, source: str) -> list[Any]:
    results: list[Any] = []
    check = harness.checks.check(Asker(tenant_id, device, source), stored, password)
    Deferred.fromCoroutine(check).addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


def make(threads: Threads, **settings: Any) -> Harness:
    return Harness(threads, **settings)


def test_right_and_wrong_passwords_are_told_apart(threads: Threads) -> None:
    """By the thread's answer alone."""
    harness = make(threads)
    right = begin(harness, 1, "dev1", "is pw", b"pw", "s")
    wrong = begin(harness, 1, "dev1", "is pw", b"no", "s")
    threads.finish()
    threads.finish()

    assert (right, wrong) == ([True], [False])


def test_same_password_of_a_device_is_checked_once_at_a_time(threads: Threads) -> None:
    """A fleet that shares an account costs one check, also from other addresses."""
    harness = make(threads)
    results = [begin(harness, 1, "dev1", "is pw", b"pw", f"s{number}") for number in range(5)]

    assert len(threads.calls) == 1
    threads.finish()
    assert results == [[True]] * 5


def test_proven_password_is_not_checked_again(threads: Threads) -> None:
    """The next CONNECT costs microseconds; another password, device, tenant or stored credential is checked."""
    harness = make(threads)
    begin(harness, 1, "dev1", "is pw", b"pw", "s")
    threads.finish()

    assert begin(harness, 1, "dev1", "is pw", b"pw", "s") == [True]
    assert not threads.calls
    for other in (
        (1, "dev1", "is pw", b"x"),
        (1, "dev2", "is pw", b"pw"),
        (2, "dev1", "is pw", b"pw"),
        (1, "dev1", "is q", b"pw"),
    ):
        begin(harness, *other, "s2")
    assert len(threads.calls) == 4


def test_wrong_password_is_never_remembered_as_proven(threads: Threads) -> None:
    """A failure is checked anew each time."""
    harness = make(threads)
    begin(harness, 1, "dev1", "is pw", b"no", "s")
    threads.finish()

    assert begin(harness, 1, "dev1", "is pw", b"no", "s") == []
    assert len(threads.calls) == 1


def test_full_pool_takes_nothing_more(threads: Threads) -> None:
    """The queue is bounded; who is proven or shares a check still gets in."""
    harness = make(threads, pending=2)
    begin(harness, 1, "a", "is pw", b"pw", "s")
    begin(harness, 1, "b", "is pw", b"pw", "s")

    assert harness.pool.is_pressed
    assert isinstance(begin(harness, 1, "c", "is pw", b"pw", "s")[0], PoolFullError)
    assert begin(harness, 1, "b", "is pw", b"pw", "s") == []
    threads.finish()
    assert not harness.pool.is_pressed


def test_one_tenant_cannot_take_the_whole_pool(threads: Threads) -> None:
    """Bulkhead: another tenant's devices are still checked."""
    harness = make(threads, pending=4, tenant_pending=2)
    begin(harness, 1, "a", "is pw", b"pw", "s")
    begin(harness, 1, "b", "is pw", b"pw", "s")

    assert isinstance(begin(harness, 1, "c", "is pw", b"pw", "s")[0], PoolFullError)
    assert begin(harness, 2, "c", "is pw", b"pw", "s") == []
    assert harness.pool.is_pressed


def test_one_source_cannot_try_many_passwords_at_once(threads: Threads) -> None:
    """A guesser from one address does not fill the queue; another address is not held up."""
    harness = make(threads, guesses=2)
    begin(harness, 1, "dev1", "is pw", b"1", "s")
    begin(harness, 1, "dev1", "is pw", b"2", "s")

    assert isinstance(begin(harness, 1, "dev1", "is pw", b"3", "s")[0], TooManyGuessesError)
    assert begin(harness, 1, "dev1", "is pw", b"pw", "other") == []


def test_failed_reply_is_later_while_checks_queue_up(threads: Threads) -> None:
    """All failures alike are answered in steps of 500 ms, so that waiting for a check is not seen from outside."""
    harness = make(threads)
    assert harness.pool.reply_after_s() == FAILED_REPLY_S
    for number in range(30):
        begin(harness, 1, f"dev{number}", "is pw", b"pw", "s")

    assert harness.pool.reply_after_s() == 2 * FAILED_REPLY_S


def test_failing_thread_frees_its_place(threads: Threads) -> None:
    """An error of the pool does not leak a place."""
    harness = make(threads, pending=1)
    result = begin(harness, 1, "a", "is pw", b"pw", "s")
    threads.calls.pop()[1].errback(RuntimeError("pool closed"))

    assert isinstance(result[0], RuntimeError)
    assert not harness.pool.is_pressed
