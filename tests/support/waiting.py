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


def until(fact: Callable[[], bool], what: str, timeout_s: float = 5.0) -> None:
    """Wait until `fact()` holds; `what` is said when it does not."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(PAUSE_S)


def until_answered(call: Callable[[], T]) -> T:
    """Call a store again at once until it answers: for one whose failures the test makes."""
    while True:
        try:
            return call()
        except BackendError as error:
            if not error.retryable:
                raise
