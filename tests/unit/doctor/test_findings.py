"""Looks side by side: what they find, what they raise, and what takes too long."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from iothub.base.errors import BackendError, UnavailableError
from iothub.doctor.findings import Finding, Look, State, take, unless_away


def good(name: str) -> Look:
    return Look(name, lambda: [Finding(name, State.OK, "fine")])


def test_findings_of_all_looks_come() -> None:
    assert {finding.name for finding in take([good("a"), good("b")], 5.0)} == {"a", "b"}


def test_error_of_the_house_is_a_failure_with_its_own_words() -> None:
    """What was found before it stays."""

    def look() -> Iterator[Finding]:
        yield Finding("server", State.OK, "is there")
        raise UnavailableError("table x is missing; create it")

    first, second = take([Look("tables", look)], 5.0)

    assert first.text == "is there"
    assert (second.name, second.state, second.text) == ("tables", State.FAIL, "table x is missing; create it")


@pytest.mark.parametrize(("is_retryable", "state"), [(True, State.WARN), (False, State.FAIL)])
def test_server_that_is_away_is_one_failure(is_retryable: bool, state: State) -> None:
    """Another look tells it; what cannot become well by itself is a failure all the same."""

    def look() -> Iterator[Finding]:
        yield Finding("streams", State.OK, "some")
        raise BackendError("no answer", retryable=is_retryable)

    first, second = take([unless_away(Look("streams", look))], 5.0)

    assert first.text == "some"
    assert (second.name, second.state, "no answer" in second.text) == ("streams", state, True)


def test_defect_of_a_look_does_not_hide_the_others() -> None:
    def broken() -> Iterator[Finding]:
        raise KeyError("oops")

    found = {finding.name: finding for finding in take([Look("broken", broken), good("a")], 5.0)}

    assert found["a"].state is State.OK
    assert found["broken"].state is State.FAIL
    assert "KeyError('oops')" in found["broken"].text


def test_look_that_hangs_is_given_up() -> None:
    """The others are not kept waiting, and neither is the operator."""
    forever = threading.Event()

    def hang() -> Iterator[Finding]:
        forever.wait()
        yield Finding("slow", State.OK, "at last")

    found = list(take([Look("slow", hang), good("a")], 0.3))
    forever.set()

    assert [(finding.name, finding.state) for finding in found] == [("a", State.OK), ("slow", State.FAIL)]
    assert found[1].text == "no answer within 0.3 s"
