"""Work on the disk that is done beside the groups, in a thread of its own: one piece at a time.

Knows nothing of what the work is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Beside(Protocol):
    """Does one piece of work after the other; whoever has started one waits for it before the next."""

    def start(self, work: Callable[[], None]) -> None: ...

    @property
    def is_over(self) -> bool:
        """Whether nobody who waits would have to."""

    def wait(self) -> None:
        """Return when it is done. Raises what it has raised."""


class InThread:
    """Fulfils `Beside`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error
