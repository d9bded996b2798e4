"""What a look at one part of a hub's surroundings finds, and how many looks are taken side by side.

Knows no part. A look that takes too long is left to itself and reported; one that raises is a finding, too.
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
    """How a part is."""

    OK = "ok"
    WARN = "warn"  # it works; somebody should look at it
    FAIL = "FAIL"  # the hub does not start with it, or refuses work


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `advice`: what to do; `seconds`: how long the part took to answer, None where nothing was asked."""

    name: str
    state: State
    text: str
    advice: str = ""
    seconds: float | None = None


class Look(NamedTuple):
    """One look: blocking, in a thread of its own. `name` stands for it while it has found nothing."""

    name: str
    take: Callable[[], Iterable[Finding]]


def take(looks: Sequence[Look], limit_s: float) -> Iterator[Finding]:
    """Take all looks side by side and yield what they find, as it comes; after `limit_s` the rest is given up."""
    answers: SimpleQueue[tuple[Look, list[Finding]]] = SimpleQueue()
    for look in looks:
        threading.Thread(target=lambda each=look: answers.put((each, _taken(each))), daemon=True).start()
    deadline = time.monotonic() + limit_s
    missing = list(looks)
    while missing:
        try:
            look, findings = answers.get(timeout=max(deadline - time.monotonic(), 0))
        except Empty:
            break
        missing.remove(look)
        yield from findings
    for look in missing:
        yield Finding(look.name, State.FAIL, f"no answer within {limit_s:g} s", "see whether it hangs", limit_s)


def of_probe(name: str, found: Probe, state: State = State.FAIL, beside: str = "") -> Finding:
    """Say what a probe has found. `state`: of a server that is not reached; `beside`: what follows from that."""
    if found.is_reached:
        return Finding(name, State.OK, found.words, seconds=found.seconds)
    return Finding(name, state, found.words, f"{found.advice}; {beside}" if beside else str(found.advice))


def unless_away(look: Look) -> Look:
    """A look at what a server holds, where another look tells whether the server answers: one that is away is told as one failure."""

    def taken() -> Iterator[Finding]:
        try:
            yield from look.take()
        except BackendError as error:
            if not error.retryable:
                raise
            yield Finding(look.name, State.WARN, f"not known: {error}", "look again when that answers")

    return Look(look.name, taken)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return what a call returns, and its seconds."""
    began = time.perf_counter()
    return call(), time.perf_counter() - began


def _taken(look: Look) -> list[Finding]:
    began = time.perf_counter()
    findings: list[Finding] = []
    try:
        findings.extend(look.take())  # what was found before an error stays
    except IotHubError as error:
        findings.append(Finding(look.name, State.FAIL, str(error), seconds=time.perf_counter() - began))
    except Exception as error:  # edge: a defect of one look must not hide what the others find
        findings.append(Finding(look.name, State.FAIL, f"defect: {error!r}", "please report it"))
    return findings
