"""Does what needs the accounts, one after the other: while they cannot be read, it waits.

Knows no Will and no account.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred

from iothub.base.errors import IotHubError, UnavailableError

UNREAD_S = (
    600.0  # so long something waits for accounts that cannot be read: longer than a SQL server takes to fail over
)

Later = Callable[[float, Callable[[], None]], object]
Item = TypeVar("Item")


def _do_nothing() -> None:
    """Nobody asks."""


class UntilRead(Generic[Item]):
    """On the reactor thread. Invariants: one item is in use at a time, the first of those that wait; each is used or given up, in their order."""

    def __init__(
        self,
        use: Callable[[Item], Awaitable[None]],
        give_up: Callable[[Item, IotHubError], None],
        now: Callable[[], float],
        later: Later,
        retry_s: float,
        on_empty: Callable[[], object] = _do_nothing,
    ) -> None:
        """`use`: raises UnavailableError to be called again `retry_s` later, for `UNREAD_S`; any other IotHubError gives the item up.

        Any other exception is a defect: the item is lost, and the next one is used `retry_s` later.

        `now`: in seconds, of any clock. `on_empty`: nothing waits any more.
        """
        self._use = use
        self._give_up = give_up
        self._now = now
        self._later = later
        self._retry_s = retry_s
        self._on_empty = on_empty
        self._waiting: deque[tuple[float, Item]] = deque()  # with until when each waits

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: Item, *, has_failed: bool = False) -> None:
        """Use an item when it is its turn. `has_failed`: it was tried a moment ago."""
        self._waiting.append((self._now() + UNREAD_S, item))
        if len(self._waiting) > 1:
            return
        if has_failed:
            self._later(self._retry_s, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        Deferred.fromCoroutine(self._use_all())

    async def _use_all(self) -> None:
        while self._waiting:
            until, item = self._waiting[0]
            try:
                await self._use(item)
            except IotHubError as error:
                if isinstance(error, UnavailableError) and self._now() < until:
                    self._later(self._retry_s, self._go_on)
                    return
                self._give_up(item, error)
            except Exception:
                self._waiting.popleft()
                if self._waiting:
                    self._later(self._retry_s, self._go_on)
                else:
                    self._on_empty()
                raise
            self._waiting.popleft()
        self._on_empty()
