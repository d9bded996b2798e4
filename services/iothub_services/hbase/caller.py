"""What code that may block needs of HBase: batches of calls, single ones, scans.

Knows no thread and no socket: `ThreadCaller` and `DirectCaller` fulfil it. Drivers of stores are written against this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar

from iothub.errors import BackendError
from iothub_services.hbase.calls import Call, Scan, close_scan, next_rows, open_scan
from iothub_services.hbase.replies import Row

T = TypeVar("T")


class Caller(ABC):
    """Blocking calls. One thread at a time may use a `DirectCaller`, any number a `ThreadCaller`."""

    @abstractmethod
    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        """Make calls, pipelined; return the result or the error of each, in their order.

        Calls with the same pin are done in their order, each after the one before it was answered, whether well or with a refusal.
        """

    def call(self, call: Call[T]) -> T:
        """Make one call. Raises BackendError."""
        (outcome,) = self.call_many([call])
        if isinstance(outcome, BackendError):
            raise outcome
        return outcome

    def call_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Make calls, pipelined; return the results of all.

        Raises BackendError when one has failed, the first one's; it is written for certain not only if all have failed so.
        """
        results: list[T] = []
        failed: list[BackendError] = []
        for outcome in self.call_many(calls):
            if isinstance(outcome, BackendError):
                failed.append(outcome)
            else:
                results.append(outcome)
        if failed:
            failed[0].is_written = bool(results) or any(error.is_written for error in failed)
            raise failed[0]
        return results

    def scan(self, scan: Scan, page: int = 128) -> Iterator[Row]:
        """Yield the rows of a scan, `page` of them with each call. Raises BackendError, also in the middle.

        Whoever stops before the end leaves a scanner in the gateway, which forgets it after a while.
        """
        scanner = self.call(open_scan(scan))
        while rows := self.call(next_rows(scanner, page, scan.pin)):
            yield from rows
            if len(rows) < page:
                break
        self.call(close_scan(scanner, scan.pin))
