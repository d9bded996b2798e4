"""What code that may block needs of HBase: batches of calls, single ones, scans.

Knows no thread and no socket: `ThreadCaller` and `DirectCaller` fulfil it. Drivers of stores are written against this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from iothub.errors import BackendError
from iothub_services.hbase.calls import Call, Scan, close_scan, next_rows, open_scan
from iothub_services.hbase.refusals import LostError
from iothub_services.hbase.replies import Row

T = TypeVar("T")

Attempt = Callable[[Sequence[Call[T]]], list[T | BackendError]]
"""Makes calls once."""


def asked_again(attempt: Attempt[T], calls: Sequence[Call[T]], gateways: int) -> list[T | BackendError]:
    """Make calls; if all of them only read, make those whose gateway was lost again, once for each gateway more."""
    outcomes = attempt(calls)
    if not all(call.verb.is_repeatable for call in calls):
        return outcomes
    for _ in range(gateways - 1):
        lost = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, LostError)]
        if not lost:
            break
        for index, outcome in zip(lost, attempt([calls[index] for index in lost]), strict=True):
            outcomes[index] = outcome
    return outcomes


class Caller(ABC):
    """Blocking calls. One thread at a time may use a `DirectCaller`, any number a `ThreadCaller`."""

    @property
    def gateways(self) -> int:
        """How many there are to ask."""
        return 1

    @abstractmethod
    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        """Make calls, pipelined; return the result or the error of each, in their order.

        Calls with the same pin are done in their order, each after the one before it was answered, whether well or with a refusal.
        Where all of them only read, those whose gateway was lost are made again, at each other gateway. A write is its caller's to repeat.
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

        A scanner that was lost with its gateway is opened again, at the next one, behind the last row that was seen.
        Whoever stops before the end leaves a scanner in the gateway, which forgets it after a while.
        """
        last: Row | None = None
        losses = 0
        while True:
            try:
                for row in self._scan(scan, page, last):
                    last, losses = row, 0
                    yield row
            except LostError:
                losses += 1
                if losses >= self.gateways:
                    raise
            else:
                return

    def _scan(self, scan: Scan, page: int, last: Row | None) -> Iterator[Row]:
        """Yield the rows of one scanner; `last`: behind that one."""
        opened = scan if last is None else replace(scan, start=last.key)
        scanner = self.call(open_scan(opened).pinned(scan.pin))
        while rows := self.call(next_rows(scanner, page, scan.pin)):
            yield from (row for row in rows if last is None or row.key != last.key)
            if len(rows) < page:
                break
        self.call(close_scan(scanner, scan.pin))
