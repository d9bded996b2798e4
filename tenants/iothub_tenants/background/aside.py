"""Work that may have to wait for a store, beside work that must not: who asks waits a moment, then goes on without it.

Knows no job's inside. Jobs are done one after another; one that fails is logged, as a regular duty is, and stops none behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import IotHubError

PATIENCE_S = 0.3  # what has to wait does not keep rights from changing within a second

log = logging.get(__name__)

Job = Callable[[], Awaitable[object]]
Later = Callable[[float, Callable[[], None]], object]


class Aside:
    """On the reactor thread. Invariant: at most one job runs; the others wait in the order in which they were asked for."""

    def __init__(self, name: str, later: Later, patience_s: float) -> None:
        self._name = name
        self._later = later
        self._patience_s = patience_s
        self._jobs: deque[tuple[Job, Deferred[None]]] = deque()
        self._is_working = False

    @property
    def is_busy(self) -> bool:
        return self._is_working

    async def do(self, job: Job) -> None:
        """Do a job; return when it is done, or when it has taken too long for whoever asks."""
        done: Deferred[None] = Deferred()
        self._jobs.append((job, done))
        if not self._is_working:
            Deferred.fromCoroutine(self._work())
        if not done.called:
            self._later(self._patience_s, lambda: _fire(done))
        await done

    async def _work(self) -> None:
        self._is_working = True
        try:
            while self._jobs:
                job, done = self._jobs.popleft()
                await self._run(job)
                _fire(done)
        finally:
            self._is_working = False

    async def _run(self, job: Job) -> None:
        try:
            await job()
        except IotHubError as error:
            log.warning("something could not be done", job=self._name, error=str(error))
        except Exception as error:  # edge: a defect in one job must not stop the others
            log.error("defect in a job", job=self._name, exc_info=error)


def _fire(done: Deferred[None]) -> None:
    if not done.called:
        done.callback(None)
