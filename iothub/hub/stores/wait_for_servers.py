"""Servers that a hub cannot start without: asked again and again until they answer, with a reason that everybody can see.

Knows no server: each is a name and a call that blocks and raises UnavailableError while it does not answer. What is loaded from them later
is a name and a piece of work, which is done again in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import UnavailableError

log = logging.get(__name__)

PAUSE_S = 1.0  # between two attempts; each takes as long as the driver waits for an answer

T = TypeVar("T")

Pause = Callable[[float], Awaitable[None]]
OnReason = Callable[[str], None]


class Timer(Protocol):
    """A reactor, as far as it is needed here."""

    def callLater(self, delay: float, call: Callable[[None], object], /, *args: None) -> object: ...  # noqa: N802


def pause(reactor: Timer, seconds: float) -> Deferred[None]:
    """Wait on the reactor's clock."""
    over: Deferred[None] = Deferred()
    reactor.callLater(seconds, over.callback, None)
    return over


def _nobody(_reason: str) -> None:
    """Nobody wants to know what is waited for."""


class Run(Protocol):
    """`iothub_services.threads.Threads.run`."""

    def __call__(self, what: str, function: Callable[[], T], /) -> Awaitable[T]: ...


class Waiting:
    """Waits for servers. `reason`: for which ones now, and why; empty when for none. `on_reason` hears of each change of it.

    The first attempt is a reason, too: a server that is paused is silent for as long as the driver waits.
    """

    def __init__(self, run: Run, pause: Pause, *, is_fail_fast: bool = False, on_reason: OnReason = _nobody) -> None:
        self._run = run
        self._pause = pause
        self._is_fail_fast = is_fail_fast
        self.reason = ""
        self._on_reason = on_reason
        self._troubles: dict[str, UnavailableError] = {}  # of those that have failed and not been heard of since
        self._is_over = False

    @property
    def is_held_up(self) -> bool:
        """Has a server failed that the start needs, and has not been heard of since?"""
        return bool(self._troubles)

    def end(self) -> None:
        """The hub ends: stop waiting; further failures are not reported."""
        self._is_over = True

    def note(self, reason: str) -> None:
        """Say what the start does, or waits for that is no server; empty: nothing of the kind. The reason of a server that has failed is kept."""
        if not self._troubles:
            self._say(reason)

    async def until_all_answer(self, needed: Mapping[str, Callable[[], None]]) -> None:
        """Return when every server has answered; who has is not asked again.

        Raises UnavailableError at once when it is not to be waited or a server has refused for good, and whatever else its driver raises:
        waiting would not help.
        """
        silent = dict(needed)
        while True:
            for name, ask in list(silent.items()):
                self.note(f"waiting for {name}: no answer yet")
                try:
                    await self._run("housekeeping.ask", ask)
                except UnavailableError as error:
                    self._waits(name, error)
                else:
                    self._goes_on(name)
                    del silent[name]
            if not silent:
                return
            await self._rest()

    async def until_loaded(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return what a piece of work returns that can be repeated, when the servers that it needs have answered. Raises as `until_all_answer`."""
        self.note(f"sessions are being loaded from {name}")
        while True:
            try:
                answer = await work()
            except UnavailableError as error:
                self._waits(name, error)
                await self._rest()
            else:
                self._goes_on(name)
                return answer

    def _waits(self, name: str, error: UnavailableError) -> None:
        """Raises UnavailableError: it is not to be waited, it is refused for good, or the hub ends."""
        if self._is_over or self._is_fail_fast or not getattr(error, "retryable", True):
            raise error
        if name not in self._troubles:
            log.warning("start waits for a server", server=name, cause=str(error))
        self._troubles[name] = error
        self._say_troubles()

    async def _rest(self) -> None:
        """Return when it may be tried again. Raises UnavailableError: the hub ends meanwhile."""
        await self._pause(PAUSE_S)
        if self._is_over:
            raise next(iter(self._troubles.values()))

    def _goes_on(self, name: str) -> None:
        if self._troubles.pop(name, None) is not None:
            log.info("server answers, start continues", server=name)
        self._say_troubles()

    def _say_troubles(self) -> None:
        self._say("; ".join(f"waiting for {name}: {error}" for name, error in self._troubles.items()))

    def _say(self, reason: str) -> None:
        if reason != self.reason:
            self.reason = reason
            self._on_reason(reason)
