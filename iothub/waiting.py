"""Servers that a hub cannot start without: asked again and again until they answer, with a reason that everybody can see.

Knows no server: each is a name and a call that blocks and raises UnavailableError while it does not answer. What is loaded from them later
is a name and a piece of work, which is done again in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from iothub import log as logging
from iothub.errors import UnavailableError

log = logging.get(__name__)

PAUSE_S = 1.0  # between two attempts; each takes as long as the driver waits for an answer

T = TypeVar("T")

Pause = Callable[[float], Awaitable[None]]


class Run(Protocol):
    """`iothub_services.threads.Threads.run`."""

    def __call__(self, what: str, function: Callable[[], T], /) -> Awaitable[T]: ...


class Waiting:
    """Waits for servers, one after the other. `reason`: for which one now, and why; empty when for none.

    The first attempt is a reason, too: a server that is paused is silent for as long as the driver waits.
    """

    def __init__(self, run: Run, pause: Pause, *, is_fail_fast: bool = False) -> None:
        self._run = run
        self._pause = pause
        self._is_fail_fast = is_fail_fast
        self.reason = ""
        self._has_failed = False
        self._is_over = False

    @property
    def is_held_up(self) -> bool:
        """Has a server failed that the start needs, and has not been heard of since?"""
        return self._has_failed

    def end(self) -> None:
        """The hub ends: nothing is waited for any more, and that a server does not answer is no news."""
        self._is_over = True

    async def until_all_answer(self, needed: Mapping[str, Callable[[], None]]) -> None:
        """Return when every server has answered.

        Raises UnavailableError at once when it is not to be waited or a server has refused for good, and whatever else its driver raises:
        waiting would not help.
        """
        for name, ask in needed.items():
            await self.until_done(name, ask)

    async def until_done(self, name: str, ask: Callable[[], T]) -> T:
        """Return what a blocking call returns when its servers answer. Raises as `until_all_answer`."""
        self.reason = f"waiting for {name}: no answer yet"
        while True:
            try:
                answer = await self._run("housekeeping.ask", ask)
            except UnavailableError as error:
                await self._wait(name, error)
            else:
                self._goes_on(name)
                return answer

    async def until_loaded(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return what a piece of work returns that can be repeated, when the servers that it needs have answered. Raises as `until_all_answer`."""
        self.reason = f"sessions are being loaded from {name}"
        while True:
            try:
                answer = await work()
            except UnavailableError as error:
                await self._wait(name, error)
            else:
                self._goes_on(name)
                return answer

    async def _wait(self, name: str, error: UnavailableError) -> None:
        """Return when it may be tried again. Raises UnavailableError: it is not to be waited, it is refused for good, or the hub ends meanwhile."""
        if self._is_over or self._is_fail_fast or not getattr(error, "retryable", True):
            raise error
        self._waits(name, error)
        await self._pause(PAUSE_S)
        if self._is_over:
            raise error

    def _waits(self, name: str, error: UnavailableError) -> None:
        if not self._has_failed:
            log.warning("waiting for a server before the start can go on", server=name, cause=str(error))
        self._has_failed = True
        self.reason = f"waiting for {name}: {error}"

    def _goes_on(self, name: str) -> None:
        if self._has_failed:
            log.info("a server answers, the start goes on", server=name)
        self._has_failed = False
        self.reason = ""
