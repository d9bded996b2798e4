"""Work beside the groups of the journal, without a thread: at once, or at any later moment before somebody waits for it."""

from __future__ import annotations

import random
from collections.abc import Callable


class AtOnce:
    """A `Beside` that is over when it has begun."""

    is_over = True

    def __init__(self, name: str = "") -> None:
        del name
        self._error: Exception | None = None

    def start(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._error = error

    def wait(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


class Later(AtOnce):
    """A `Beside` whose work is done when somebody looks, or waits: by chance."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._work: Callable[[], None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        assert self._work is None, "one piece at a time"
        self._work = work

    @property
    def is_over(self) -> bool:  # type: ignore[override]
        if self._chance.random() < 0.3:
            self._do()
        return self._work is None

    def wait(self) -> None:
        self._do()
        super().wait()

    def _do(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            super().start(work)
