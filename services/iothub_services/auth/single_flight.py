"""One question at a time: callers that ask the same thing while it is being answered share the answer.

Knows neither questions nor answers. A caller that gives up does not end the call for the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Calls under way, by key; must be used on the reactor thread."""

    def __init__(self) -> None:
        self._waiting: dict[K, list[Deferred[V]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: K) -> bool:
        return key in self._waiting

    def join(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> Awaitable[V]:
        """Return the answer, asking only if no question for `key` is under way. An error is shared like an answer."""
        mine: Deferred[V] = Deferred()
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(mine)
            return mine
        self._waiting[key] = [mine]

        def answer_all(outcome: V | Failure) -> None:
            for waiter in self._waiting.pop(key):
                if not waiter.called:  # cancelled: its caller has gone
                    waiter.callback(outcome)

        Deferred.fromCoroutine(ask()).addBoth(answer_all)
        return mine
