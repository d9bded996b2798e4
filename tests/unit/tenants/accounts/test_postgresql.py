"""A connection to PostgreSQL does not wait for ever."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator

import psycopg
import pytest

from iothub_tenants.accounts.postgresql import _until


def _exchange(steps: int) -> Generator[int, int, str]:
    for _ in range(steps):
        yield 1
    return "done"


def test_what_the_library_ignores_is_not_in_our_log() -> None:
    """It would be a line of no form among those of a hub or a command."""
    library = logging.getLogger("psycopg")

    assert not library.propagate
    assert logging.NullHandler in map(type, library.handlers)  # else logging has its own last resort


def test_exchange_is_passed_on_to_its_end() -> None:
    """With what it returns."""
    passed = _until(_exchange(2), time.monotonic() + 60, 60)
    assert next(passed) == 1
    assert passed.send(1) == 1

    with pytest.raises(StopIteration) as end:
        passed.send(1)

    assert end.value.value == "done"


def test_exchange_without_an_answer_is_given_up() -> None:
    """When nothing is ready behind the deadline."""
    passed = _until(_exchange(2), time.monotonic() - 1, 5)
    next(passed)

    with pytest.raises(psycopg.OperationalError, match="no answer within 5 s"):
        passed.send(0)


def test_answer_behind_the_deadline_is_still_an_answer() -> None:
    """A machine that was paused finds it waiting."""
    passed = _until(_exchange(2), time.monotonic() - 1, 5)
    next(passed)

    assert passed.send(1) == 1
