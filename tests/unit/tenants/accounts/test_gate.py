"""The gate before a SQL server: who would wait for a silent one is refused, but for one call a second."""

from __future__ import annotations

from contextlib import suppress

import pytest

from iothub.base.errors import ConflictError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts.gate import ADVICE, PROBE_S, Gate, GoneError, NotAskedError


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gate(clock: ManualClock) -> Gate:
    return Gate(clock)


def _fail(gate: Gate) -> None:
    with pytest.raises(GoneError, match="silent"), gate.passed():
        raise GoneError("silent")


def _is_shut(gate: Gate) -> bool:
    has_passed = False
    with suppress(GoneError), gate.passed():
        has_passed = True
    return not has_passed


def test_gate_is_open_at_first(gate: Gate) -> None:
    """Nothing has failed yet."""
    assert not _is_shut(gate)


def test_silent_server_is_not_asked_again_at_once(gate: Gate) -> None:
    """With the words of the call that found it silent, and the advice once."""
    _fail(gate)

    with pytest.raises(GoneError) as caught, gate.passed():
        pass
    assert str(caught.value) == f"silent; {ADVICE}"


def test_one_call_a_second_looks_whether_it_answers(gate: Gate, clock: ManualClock) -> None:
    """The others do not wait behind it."""
    _fail(gate)
    clock.advance(PROBE_S)

    with gate.passed():
        assert _is_shut(gate)

    assert not _is_shut(gate)


def test_probe_that_fails_keeps_it_shut(gate: Gate, clock: ManualClock) -> None:
    """For another second, from its end."""
    _fail(gate)
    clock.advance(PROBE_S)
    _fail(gate)

    assert _is_shut(gate)


def test_call_that_got_no_connection_says_nothing_of_the_server(gate: Gate, clock: ManualClock) -> None:
    """All of them may be waiting for the one that is silent."""
    _fail(gate)
    clock.advance(PROBE_S)

    with pytest.raises(NotAskedError), gate.passed():
        raise NotAskedError("every connection is in use")

    assert _is_shut(gate)


def test_refusal_of_a_verb_is_an_answer(gate: Gate, clock: ManualClock) -> None:
    """A server that says no is there."""
    _fail(gate)
    clock.advance(PROBE_S)

    with pytest.raises(ConflictError), gate.passed():
        raise ConflictError("exists already")

    assert not _is_shut(gate)
