"""Runs the hub's periodic tasks: changes in the accounts, deadlines of sessions, tails of queues and others.

Knows nothing of what a task does: each is an awaitable call with a period. One that is still running is not started again; one that fails is
logged and tried again after its period, so that a store that is down stops nothing else.
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
class PeriodicTask:
    """One periodic call. `name` for the log and for `hurry`; `stop`: called when the hub stops, to end a call that takes long.

    `is_asked`: it was wanted while it was running.
    """

    name: str
    period_s: float
    call: Callable[[], Awaitable[object]]
    stop: Callable[[], None] | None = None
    is_running: bool = False
    is_asked: bool = False


class TaskRunner:
    """Runs periodic tasks until stopped. On the reactor thread."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._tasks: list[PeriodicTask] = []
        self._is_stopped = False

    def add(
        self,
        name: str,
        period_s: float,
        call: Callable[[], Awaitable[object]],
        stop: Callable[[], None] | None = None,
    ) -> None:
        self._tasks.append(PeriodicTask(name, period_s, call, stop))

    def start(self) -> None:
        for task in self._tasks:
            self._schedule(task)

    def stop(self) -> None:
        """Start no task any more; one that is running ends by itself, or by its `stop`."""
        self._is_stopped = True
        for task in self._tasks:
            if task.stop is not None:
                task.stop()

    def hurry(self, name: str) -> None:
        """Run a task now; once more, if it is running. Its period goes on as it was."""
        for task in self._tasks:
            if task.name != name or self._is_stopped:
                continue
            if task.is_running:
                task.is_asked = True
            else:
                Deferred.fromCoroutine(self._run(task))

    def _schedule(self, task: PeriodicTask) -> None:
        self._later(task.period_s, lambda: self._begin(task))

    def _begin(self, task: PeriodicTask) -> None:
        if self._is_stopped:
            return
        if task.is_running:
            self._schedule(task)
        else:
            Deferred.fromCoroutine(self._run(task)).addBoth(lambda _: self._schedule(task))

    async def _run(self, task: PeriodicTask) -> None:
        task.is_running = task.is_asked = True
        while task.is_asked and not self._is_stopped:
            task.is_asked = False
            await self._run_once(task)
        task.is_running = False

    async def _run_once(self, task: PeriodicTask) -> None:
        try:
            await task.call()
        except IotHubError as error:
            log.warning("periodic task failed, will retry", task=task.name, error=str(error))
        except Exception as error:  # edge: a defect in one task must not stop the others
            log.error("defect in a periodic task", task=task.name, exc_info=error)
