"""Rows of driver `hbase-plain` that nobody needs any more, until they are deleted.

Knows row keys; knows not why a row is not needed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TypeVar

from iothub.base.errors import BackendError
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Mutation
from iothub_services.queues.hbase_plain.meta import BATCH

T = TypeVar("T")

MOST = 10_000  # what is beyond stays until a hub claims the queue for the first time
_ROWS_AT_ONCE = 500


class Doomed:
    """Any thread may use it."""

    def __init__(self, caller: Caller, table: bytes) -> None:
        self._caller = caller
        self._table = table
        self._lock = threading.Lock()
        self._rows: list[Mutation] = []

    def add(self, row: bytes) -> None:
        """Delete a row next time."""
        with self._lock:
            if len(self._rows) < MOST:
                self._rows.append(Mutation(row, {}, (BATCH,)))

    def delete(self, *, is_needed: bool = False) -> None:
        """Delete them. What fails is tried again next time, unless it is needed now: then it raises BackendError."""
        with self._lock:
            rows, self._rows = self._rows, []
        chunks = parts(rows, _ROWS_AT_ONCE)
        outcomes = self._caller.call_many([calls.mutate_rows(self._table, chunk) for chunk in chunks])
        failed: list[BackendError] = []
        for chunk, outcome in zip(chunks, outcomes, strict=True):
            if isinstance(outcome, BackendError):
                failed.append(outcome)
                with self._lock:
                    self._rows += chunk
        if failed and is_needed:
            raise failed[0]


def parts(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return what one call takes, in order."""
    return [items[at : at + size] for at in range(0, len(items), size)]
