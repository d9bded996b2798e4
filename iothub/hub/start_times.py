"""What a start takes: the seconds of each of its parts, for one line of the log.

Knows no part of a hub.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from iothub.base import log_level

HOW_LONG = "how long the start took"


class StartTimes:
    """Part after part, from the first line of the program on. Invariant: the parts make up the whole."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, began_at: float | None = None) -> None:
        """`began_at`: when the program began; None: this one."""
        self._monotonic = monotonic
        self._began_at = self._at = log_level.program_began_at if began_at is None else began_at
        self._parts: dict[str, float] = {}

    def ended(self, part: str) -> None:
        """The part that was under way since the last one has ended."""
        now = self._monotonic()
        self._parts[f"{part}_s"] = self._parts.get(f"{part}_s", 0.0) + now - self._at
        self._at = now

    def fields(self) -> dict[str, float]:
        """Return the seconds of the whole until the last part ended, and of each part, in their order."""
        parts = {part: round(seconds, 2) for part, seconds in self._parts.items()}
        return {"seconds": round(self._at - self._began_at, 2), **parts}
