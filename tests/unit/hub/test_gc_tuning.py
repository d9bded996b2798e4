"""When Python looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from iothub.base import gc_tuning
from iothub.base.errors import BackendError


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_nothing_is_looked_for_meanwhile_and_afterwards_it_is_as_before(was_enabled: bool) -> None:
    """Also within another such work, and when the work fails."""
    if not was_enabled:
        gc.disable()

    with pytest.raises(BackendError), gc_tuning.uncollected():
        _fail([])
    after_failure = gc.isenabled()
    with gc_tuning.uncollected():
        meanwhile = gc.isenabled()

    assert (after_failure, meanwhile, gc.isenabled()) == (was_enabled, False, was_enabled)


def _fail(left: list[list[object]]) -> None:
    left.append([])
    raise BackendError("the store does not answer", retryable=True)


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_was_made_is_never_looked_at(is_settled: bool) -> None:
    """A session is made once and stays: to go through a million of them takes seconds."""
    made: list[list[int]] = []
    with gc_tuning.uncollected():
        made.append([1])
    if is_settled:
        made.append([2])
        gc_tuning.settle()

    looked_at = {id(thing) for thing in gc.get_objects()}  # by the next look
    assert not looked_at.intersection(map(id, made))


def test_what_a_failure_leaves_is_garbage() -> None:
    """A start repeats its loading for hours while a server is away: each attempt would leave all that it had read."""
    left: list[list[object]] = []
    with pytest.raises(BackendError), gc_tuning.uncollected():
        _fail(left)

    assert any(thing is left[0] for thing in gc.get_objects())
