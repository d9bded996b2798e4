"""Checks in parallel: what they find, what they raise, and what takes too long."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from iothub.base.errors import BackendError, UnavailableError
from iothub.doctor.findings import Check, Finding, State, run_checks, unless_down


def good(name: str) -> Check:
    return Check(name, lambda: [Finding(name, State.OK, "fine")])


def test_findings_of_all_looks_come() -> None:
    assert {finding.name for finding in run_checks([good("a"), good("b")], 5.0)} == {"a", "b"}


def test_error_of_the_house_is_a_failure_with_its_own_words() -> None:
    """What was found before it stays."""

    def check() -> Iterator[Finding]:
        yield Finding("server", State.OK, "is there")
        raise UnavailableError("table x is missing; create it")

    first, second = run_checks([Check("tables", check)], 5.0)

    assert first.text == "is there"
    assert (second.name, second.state, second.text) == ("tables", State.FAIL, "table x is missing; create it")


@pytest.mark.parametrize(("is_retryable", "state"), [(True, State.WARN), (False, State.FAIL)])
def test_server_that_is_away_is_one_failure(is_retryable: bool, state: State) -> None:
    """Another check reports it; what cannot become well by itself is a failure all the same."""

    def check() -> Iterator[Finding]:
        yield Finding("streams", State.OK, "some")
        raise BackendError("no answer", retryable=is_retryable)

    first, second = run_checks([unless_down(Check("streams", check))], 5.0)

    assert first.text == "some"
    assert (second.name, second.state, "no answer" in second.text) == ("streams", state, True)


def test_defect_of_a_look_does_not_hide_the_others() -> None:
    def broken() -> Iterator[Finding]:
        raise KeyError("oops")

    found = {finding.name: finding for finding in run_checks([Check("broken", broken), good("a")], 5.0)}

    assert found["a"].state is State.OK
    assert found["broken"].state is State.FAIL
    assert "KeyError('oops')" in found["broken"].text


def test_look_that_hangs_is_given_up() -> None:
    """The others are not kept waiting, and neither is the operator."""
    forever = threading.Event()

    def hang() -> Iterator[Finding]:
        forever.wait()
        yield Finding("slow", State.OK, "at last")

    found = list(run_checks([Check("slow", hang), good("a")], 0.3))
    forever.set()

    assert [(finding.name, finding.state) for finding in found] == [("a", State.OK), ("slow", State.FAIL)]
    assert found[1].text == "no answer within 0.3 s"
