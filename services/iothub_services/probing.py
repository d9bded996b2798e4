"""What one cheap question to a server has found: for the doctor, and for a start that waits for servers.

Knows no server: each port has its `probe`. Nothing is concluded from the words of a server or a library: they are passed on, with the
setting to check and the section of the guide that explains them. They hold no secret, as nobody sends one outside a handshake.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from iothub.base.errors import BackendError, IotHubError


class Advice(NamedTuple):
    """What to do about a server that is not reached. `setting`: of the configuration; `page`: a section of the guide."""

    setting: str
    page: str

    def __str__(self) -> str:
        return f"check {self.setting}; see {self.page}"


@dataclass(frozen=True, slots=True)
class Probe:
    """`words`: the answer, or why there is none. `error`: None where the server has answered as it should."""

    words: str
    advice: Advice
    seconds: float
    error: IotHubError | None = None

    @property
    def is_reached(self) -> bool:
        return self.error is None

    def require(self) -> None:
        """Raises what the question has raised, with the advice: UnavailableError where waiting may help."""
        error = self.error
        if isinstance(error, BackendError) and not error.remedy:
            raise BackendError(error.fact, retryable=error.retryable, remedy=str(self.advice)) from error
        if error is not None:
            raise error


def probe_by(question: Callable[[], str], advice: Advice) -> Probe:
    """Ask, which may block for the time-outs of the connection; `question` returns the answer in words."""
    began = time.perf_counter()
    error: IotHubError | None = None
    try:
        words = question()
    except IotHubError as failed:
        error, words = failed, getattr(failed, "fact", str(failed))
    return Probe(words, advice, time.perf_counter() - began, error)


def require(probe: Callable[[], Probe]) -> None:
    """Probe, and raise as `Probe.require`."""
    probe().require()
