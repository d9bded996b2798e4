"""Waiting for what another process does by itself soon.

Knows no process: the fact is asked again and again, with a pause, because many a question costs nothing to ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from iothub.base.errors import BackendError

T = TypeVar("T")

PAUSE_S = 0.02
PATIENCE_S = 300.0  # only what hangs comes to it: a wait ends with its fact, and the machine may be slow or busy


def until(fact: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until `fact()` holds; `what` is said when it does not."""
    assert comes_true(fact, timeout_s), f"not within {timeout_s:g} s: {what}"


def comes_true(fact: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until `fact()` holds, and tell whether it did in time."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        if time.monotonic() >= deadline:
            return False
        time.sleep(PAUSE_S)
    return True


def until_answered(call: Callable[[], T]) -> T:
    """Call a store again at once until it answers: for one whose failures the test makes."""
    while True:
        try:
            return call()
        except BackendError as error:
            if not error.retryable:
                raise
