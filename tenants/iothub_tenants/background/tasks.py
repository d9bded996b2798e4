"""The hub's regular duties: changes in the accounts, commands from the CLI, deadlines of sessions, tails of caught-up queues.

Knows no duty's inside: each is an awaitable call with a period. One that is still running is not started again; one that fails is logged
and tried at its next turn, so that a store that is down for a while stops nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import IotHubError

log = logging.get(__name__)

Later = Callable[[float, Callable[[], None]], object]


@dataclass(slots=True)
class Duty:
    """One regular call. `name` for the log; `end`: what a call that takes long is told when the hub stops."""

    name: str
    period_s: float
    call: Callable[[], Awaitable[object]]
    end: Callable[[], None] | None = None


class Upkeep:
    """Runs duties until stopped. On the reactor thread."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._duties: list[Duty] = []
        self._is_stopped = False

    def add(
        self,
        name: str,
        period_s: float,
        call: Callable[[], Awaitable[object]],
        end: Callable[[], None] | None = None,
    ) -> None:
        self._duties.append(Duty(name, period_s, call, end))

    def start(self) -> None:
        for duty in self._duties:
            self._schedule(duty)

    def stop(self) -> None:
        """Start nothing more; what runs now ends by itself, or is told to."""
        self._is_stopped = True
        for duty in self._duties:
            if duty.end is not None:
                duty.end()

    def _schedule(self, duty: Duty) -> None:
        self._later(duty.period_s, lambda: self._begin(duty))

    def _begin(self, duty: Duty) -> None:
        if self._is_stopped:
            return
        Deferred.fromCoroutine(self._run(duty)).addBoth(lambda _: self._schedule(duty))

    async def _run(self, duty: Duty) -> None:
        try:
            await duty.call()
        except IotHubError as error:
            log.warning("a regular duty could not be done; it is tried again", duty=duty.name, error=str(error))
        except Exception as error:  # edge: a defect in one duty must not stop the others
            log.error("defect in a regular duty", duty=duty.name, exc_info=error)
