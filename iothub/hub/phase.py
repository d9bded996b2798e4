"""How far a hub is: starting, ready, draining, stopping. Set by start, drain and stop, read by whoever answers for the hub.

Knows nobody.
"""

from __future__ import annotations

from collections.abc import Callable

BEGIN_AGAIN, BEGIN_AGAIN_DRAINING = -1, -2
"""Instead of an exit code: the process is to be replaced by one with the same command line, at once; it drained, and goes on with that."""

OnDrain = Callable[[bool], None]
"""Gets whether the hub drains, whenever that changes, but for the drain of a stop: the next process lets clients in."""


def _ignore(_is_draining: bool) -> None:
    """A drain ends with this process."""


class Phase:
    """On the reactor thread. Invariants: `is_ready` from the open listeners to the stop; `is_stopping` never ends.

    `is_draining`: clients are asked to go, and no new one is let in.
    """

    __slots__ = ("_on_drain", "is_draining", "is_ready", "is_stopping")

    def __init__(self, *, is_draining: bool = False, on_drain: OnDrain = _ignore) -> None:
        """`is_draining`: the process before this one did, so no client is let in."""
        self.is_ready = False
        self.is_draining = is_draining
        self.is_stopping = False
        self._on_drain = on_drain

    def become_ready(self) -> None:
        self.is_ready = True

    def begin_drain(self) -> None:
        """`/readyz` answers 503 until the drain ends."""
        self.is_draining = True
        if not self.is_stopping:
            self._on_drain(True)

    def end_drain(self) -> None:
        self.is_draining = False
        self._on_drain(False)

    def stop(self) -> None:
        self.is_stopping = True

    def end_ready(self) -> None:
        """`/readyz` answers 503 from here on."""
        self.is_ready = False
