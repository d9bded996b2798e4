"""How far a hub is: starting, ready, draining, stopping. Set by start, drain and stop, read by whoever answers for the hub.

Knows nobody.
"""

from __future__ import annotations


class Phase:
    """On the reactor thread. Invariants: `is_ready` from the open listeners to the stop; `is_stopping` never ends.

    `is_draining`: clients are asked to go, and no new one is let in.
    """

    __slots__ = ("is_draining", "is_ready", "is_stopping")

    def __init__(self) -> None:
        self.is_ready = False
        self.is_draining = False
        self.is_stopping = False

    def become_ready(self) -> None:
        self.is_ready = True

    def begin_drain(self) -> None:
        """`/readyz` answers 503 until the drain ends."""
        self.is_draining = True

    def end_drain(self) -> None:
        self.is_draining = False

    def stop(self) -> None:
        self.is_stopping = True

    def end_ready(self) -> None:
        """`/readyz` answers 503 from here on."""
        self.is_ready = False
