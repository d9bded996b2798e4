"""What kafka-python has logged of failed connections: its errors often say only that time is over.

Knows the form of these lines and not what they mean.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable

_LONGEST = 300  # characters of a line
_LINES = 3
_FRESH_S = 30.0  # an older line is of another failure
_OF_CONNECTION = re.compile(
    r"(?:Bootstrap (?:connection|attempt) to \S+ failed|Connection failed|Connection lost): (.*?)(?: \(backoff [\d.]+ secs\))?$"
)


class LastFailures(logging.Handler):
    """The last different lines of kafka-python that say why a connection failed. Its lines go no further."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        super().__init__(logging.WARNING)
        self._now = now
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._at_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        found = _OF_CONNECTION.search(" ".join(record.getMessage().split()))
        if found is None:
            return
        if record.created - self._at_s > _FRESH_S:
            self._lines.clear()
        self._at_s = record.created
        line = found[1][:_LONGEST]
        if line not in self._lines:
            self._lines.append(line)

    def take_recent(self) -> str:
        """Return them once: the next failure may have another cause. "": none that is recent."""
        lines = "; ".join(self._lines)
        self._lines.clear()
        return lines if self._now() - self._at_s <= _FRESH_S else ""


def listen() -> LastFailures:
    """Take the lines of the library; what becomes of them is in our own errors and alarms."""
    logger = logging.getLogger("kafka")
    words = LastFailures()
    logger.handlers[:] = [words]
    logger.propagate = False
    return words
