"""Twisted's own log events, as lines of `iothub.base.log`.

Knows nothing of what Twisted does: failures become errors with their kind and place, warnings become warnings, and its
chatter (factories starting and stopping) is written at debug level only.
"""

from __future__ import annotations

import logging

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from iothub.base import log

_LEVELS = {LogLevel.warn: logging.WARNING, LogLevel.error: logging.ERROR, LogLevel.critical: logging.ERROR}


@implementer(ILogObserver)
class Observer:
    """Passes one Twisted log event on."""

    def __init__(self) -> None:
        self._log = log.get("twisted")

    def __call__(self, event: LogEvent) -> None:
        failure = event.get("log_failure")
        text = formatEvent(event).replace("\n", " ")
        if failure is not None:
            error = failure.value.with_traceback(failure.getTracebackObject())
            self._log.error("unexpected error", text=text, exc_info=error)
            return
        level = _LEVELS.get(event.get("log_level", LogLevel.info), logging.DEBUG)
        self._log.log(level, "twisted message", text=text)


def bridge() -> None:
    """Make Twisted log through `iothub.base.log`; once per process, before the reactor runs."""
    globalLogBeginner.beginLoggingTo([Observer()], discardBuffer=True, redirectStandardIO=False)
