"""Refuses calls to a server that was silent a moment ago, so that nobody queues behind calls that wait for it.

Knows no server. While it is silent one call every `PROBE_S` goes through, to see whether it answers again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from iothub.base.clock import Clock
from iothub.base.errors import BackendError, ConfigError
from iothub_services.probing import Advice

PROBE_S = 1.0
OUR_URL = "the url in the file of sql.url_file"  # what errors call it
ADVICE = Advice(OUR_URL, "docs/guide/sql.md#the-hub-does-not-reach-the-server")


class GoneError(BackendError):
    """The server cannot be reached."""

    def __init__(self, fact: str) -> None:
        super().__init__(fact, retryable=True, remedy=str(ADVICE))


class RefusedError(ConfigError):
    """The server lets us not in, or the url leads to nobody: waiting does not help whoever was never let in."""

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact}; {ADVICE}")
        self.fact = fact


class NotAskedError(BackendError):
    """Every connection is in use: whether the server answers was not tried."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class Gate:
    """May be used from any thread. Open until a call raises GoneError; open again with the first call that was answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._reason = ""  # why it is shut
        self._next_probe = 0.0

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Go through, or not. Raises GoneError, with the reason of the last call that went through."""
        self._enter()
        try:
            yield
        except GoneError as error:
            self._shut(error.fact)
            raise
        except NotAskedError:
            raise
        except BaseException:
            self._open()  # whatever it says, it has answered
            raise
        self._open()

    def _enter(self) -> None:
        if not self._reason:
            return
        with self._lock:
            reason = self._reason
            now = self._clock.monotonic()
            if reason and now < self._next_probe:
                raise GoneError(reason)
            self._next_probe = now + PROBE_S

    def _shut(self, reason: str) -> None:
        with self._lock:
            self._reason = reason
            self._next_probe = self._clock.monotonic() + PROBE_S

    def _open(self) -> None:
        if self._reason:
            with self._lock:
                self._reason = ""
