"""When to dial a peer again: soon after a link that held, later after each failure.

Knows no link: its caller says how attempts ended.
"""

from __future__ import annotations

import random

FIRST_S = 0.05
LONGEST_S = 2.0


class Backoff:
    """Doubles from `FIRST_S` to `LONGEST_S`, each time by a random part shorter, so that peers that failed together do not dial together."""

    def __init__(self, rng: random.Random) -> None:
        self.due = float("-inf")
        self._rng = rng
        self._delay_s = FIRST_S

    def note_failure(self, now: float) -> None:
        """Wait before the next attempt."""
        self.due = now + self._rng.uniform(0.5, 1.0) * self._delay_s
        self._delay_s = min(LONGEST_S, 2 * self._delay_s)

    def note_refusal(self, now: float) -> None:
        """Wait for as long as there is: a refusal does not pass by itself."""
        self._delay_s = LONGEST_S
        self.note_failure(now)

    def note_success(self) -> None:
        """Begin anew. Not at a HELLO, but when the link has held for a while: one that breaks at once is a failure."""
        self._delay_s = FIRST_S
