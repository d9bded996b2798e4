"""Runs tasks that may have to wait for a store, so that the caller waits only a moment for them and then goes on.

Knows nothing of what a task does. Tasks run one after another; one that fails is logged and stops no other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import IotHubError

PATIENCE_S = 0.3  # short enough that changed rights are in force within a second although a store does not answer

log = logging.get(__name__)

Task = Callable[[], Awaitable[object]]
Later = Callable[[float, Callable[[], None]], object]


class TaskQueue:
    """On the reactor thread. Invariant: at most one task runs; the others wait in the order in which they were added."""

    def __init__(self, name: str, later: Later, patience_s: float) -> None:
        self._name = name
        self._later = later
        self._patience_s = patience_s
        self._tasks: deque[tuple[Task, Deferred[None]]] = deque()
        self._is_working = False

    @property
    def is_busy(self) -> bool:
        return self._is_working

    async def run_task(self, task: Task) -> None:
        """Add a task; return when it is done, or after `patience_s` while it goes on."""
        done: Deferred[None] = Deferred()
        self._tasks.append((task, done))
        if not self._is_working:
            Deferred.fromCoroutine(self._work())
        if not done.called:
            self._later(self._patience_s, lambda: _fire(done))
        await done

    async def _work(self) -> None:
        self._is_working = True
        try:
            while self._tasks:
                task, done = self._tasks.popleft()
                await self._run(task)
                _fire(done)
        finally:
            self._is_working = False

    async def _run(self, task: Task) -> None:
        try:
            await task()
        except IotHubError as error:
            log.warning("background task failed, will retry", task=self._name, error=str(error))
        except Exception as error:  # edge: a defect in one task must not stop the others
            log.error("defect in a background task", task=self._name, exc_info=error)


def _fire(done: Deferred[None]) -> None:
    if not done.called:
        done.callback(None)
