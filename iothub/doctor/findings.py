"""The result of a check of one part that the hub needs, and how checks run in parallel.

Knows no part. A check that takes too long is abandoned and reported; an exception is a finding, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

from iothub.base.errors import BackendError, IotHubError
from iothub_services.probing import Probe

T = TypeVar("T")


class State(Enum):
    """State of a part."""

    OK = "ok"
    WARN = "warn"  # it works, but needs attention
    FAIL = "FAIL"  # the hub does not start with it, or refuses work


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `advice`: what to do; `seconds`: how long the part took to answer, None if it was not asked."""

    name: str
    state: State
    text: str
    advice: str = ""
    seconds: float | None = None


class Check(NamedTuple):
    """One check, which blocks and runs in its own thread. `name` is shown if it finds nothing in time."""

    name: str
    run: Callable[[], Iterable[Finding]]


def run_checks(checks: Sequence[Check], limit_s: float) -> Iterator[Finding]:
    """Run all checks in parallel and yield findings as they come; after `limit_s` the remaining ones are abandoned."""
    answers: SimpleQueue[tuple[Check, list[Finding]]] = SimpleQueue()
    for check in checks:
        threading.Thread(target=lambda each=check: answers.put((each, _run(each))), daemon=True).start()
    deadline = time.monotonic() + limit_s
    missing = list(checks)
    while missing:
        try:
            check, findings = answers.get(timeout=max(deadline - time.monotonic(), 0))
        except Empty:
            break
        missing.remove(check)
        yield from findings
    for check in missing:
        yield Finding(check.name, State.FAIL, f"no answer within {limit_s:g} s", "check whether it hangs", limit_s)


def of_probe(name: str, found: Probe, state: State = State.FAIL, beside: str = "") -> Finding:
    """Return the finding of a probe. `state`: for a server that is not reached; `beside`: the consequence."""
    if found.is_reached:
        return Finding(name, State.OK, found.words, seconds=found.seconds)
    return Finding(name, state, found.words, f"{found.advice}; {beside}" if beside else str(found.advice))


def unless_down(check: Check) -> Check:
    """A check of a server's content. If the server does not answer, this is only a warning: another check reports the failure."""

    def run() -> Iterator[Finding]:
        try:
            yield from check.run()
        except BackendError as error:
            if not error.retryable:
                raise
            yield Finding(check.name, State.WARN, f"not checked: {error}", "run iothub doctor again when it answers")

    return Check(check.name, run)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call and its duration in seconds."""
    began = time.perf_counter()
    return call(), time.perf_counter() - began


def _run(check: Check) -> list[Finding]:
    began = time.perf_counter()
    findings: list[Finding] = []
    try:
        findings.extend(check.run())  # what was found before an error stays
    except IotHubError as error:
        seconds = time.perf_counter() - began
        findings += [Finding(check.name, State.FAIL, text, seconds=seconds) for text in (str(error), *error.details)]
    except Exception as error:  # edge: a defect of one check must not hide the findings of the others
        findings.append(Finding(check.name, State.FAIL, f"defect: {error!r}", "please report it"))
    return findings
