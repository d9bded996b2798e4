"""A connection to PostgreSQL that gives up on a server that has gone silent: the library itself waits for ever.

Knows no statement. A server whose machine answers but which is stopped, or behind a network that swallows packets, closes no connection.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

_library_log = logging.getLogger("psycopg")  # what it ignores when a connection dies: our own error reports that
_library_log.propagate = False
_library_log.addHandler(logging.NullHandler())


class PatientConnection(psycopg.Connection[Any]):
    """Waits for every answer `answer_s` at most; after that the connection is closed."""

    answer_s = 60.0

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Run one exchange with the server. Raises psycopg.OperationalError."""
        try:
            return super().wait(_until(gen, monotonic() + self.answer_s, self.answer_s), *args, **options)
        except _SilentError:
            self.close()
            raise


class _SilentError(psycopg.OperationalError):
    """No answer in time."""


def connect(answer_s: float, *args: Any, **options: Any) -> PatientConnection:
    """Open a connection as `psycopg.connect` does. Raises psycopg.OperationalError."""
    made = PatientConnection.connect(*args, **options)
    made.answer_s = answer_s
    return made


def _until(exchange: Generator[Any, Any, T], deadline: float, limit_s: float) -> Generator[Any, Any, T]:
    """Pass an exchange on, step by step; the library looks up several times a second, also when nothing has come."""
    try:
        wanted = next(exchange)
        while True:
            ready = yield wanted
            if not ready and monotonic() > deadline:
                raise _SilentError(f"no answer within {limit_s:g} s")
            wanted = exchange.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result
