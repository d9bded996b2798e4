"""What code that may block needs of HBase: batches of calls, single ones, scans.

Knows no thread and no socket: `ThreadCaller` and `DirectCaller` fulfil it. Drivers of stores are written against this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from iothub.base.errors import BackendError
from iothub_services.hbase.calls import Call, Scan, close_scan, next_rows, open_scan
from iothub_services.hbase.refusals import LostError
from iothub_services.hbase.replies import Row, Scanner

T = TypeVar("T")
Asked = TypeVar("Asked")

Attempt = Callable[[Sequence[Asked]], list[T | BackendError]]
"""Asks once: gives the result or the error of each."""


def asked_again(attempt: Attempt[Call[T], T], calls: Sequence[Call[T]], gateways: int) -> list[T | BackendError]:
    """Make calls; if all of them only read, make those whose gateway was lost again, once for each gateway more."""
    return _asked(attempt, calls, gateways if all(call.verb.is_repeatable for call in calls) else 1)


def _asked(attempt: Attempt[Asked, T], asked: Sequence[Asked], times: int) -> list[T | BackendError]:
    """Ask, and ask again where the gateway was lost, so many times in all."""
    outcomes = attempt(asked)
    for _ in range(times - 1):
        lost = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, LostError)]
        if not lost:
            break
        for index, outcome in zip(lost, attempt([asked[index] for index in lost]), strict=True):
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
        if not isinstance(outcome, BackendError):
            return outcome
        try:
            raise outcome
        finally:
            del (
                outcome
            )  # else this frame keeps the error, which keeps this frame and those of all callers with what they hold

    def call_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Make calls, pipelined; return the results of all.

        Raises BackendError when one has failed, the first one's; it is written for certain not only if all have failed so.
        """
        outcomes = self.call_many(calls)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BackendError)]
        if not failed:
            return [outcome for outcome in outcomes if not isinstance(outcome, BackendError)]
        failed[0].is_written = len(failed) < len(outcomes) or any(error.is_written for error in failed)
        try:
            raise failed[0]
        finally:
            del failed, outcomes  # as in `call`

    @property
    def _times(self) -> int:
        """How often a scanner is opened in a row: one gateway is asked twice, a scanner is lost with its connection alone, too."""
        return max(self.gateways, 2)

    def first_rows(self, scans: Sequence[Scan], count: int) -> list[list[Row] | BackendError]:
        """Return the first rows of each scan, `count` at most, or its error: all scanners are opened, read once and closed, pipelined.

        Those that were lost before they were read are opened again.
        """
        return _asked(lambda asked: self._first_rows(asked, count), scans, self._times)

    def _first_rows(self, scans: Sequence[Scan], count: int) -> list[list[Row] | BackendError]:
        opened = self.call_many([open_scan(scan) for scan in scans])
        reads: list[Call[list[Row] | None]] = []
        for scan, scanner in zip(scans, opened, strict=True):
            if isinstance(scanner, Scanner):
                reads += next_rows(scanner, count, scan.pin), close_scan(scanner, scan.pin)
        found = iter(self.call_many(reads)[::2])
        outcomes = [next(found) if isinstance(scanner, Scanner) else scanner for scanner in opened]
        return [[] if outcome is None else outcome for outcome in outcomes]

    def scan(self, scan: Scan, page: int = 128) -> Iterator[Row]:
        """Yield the rows of a scan, `page` of them with each call. Raises BackendError, also in the middle.

        A scanner that was lost, with its gateway or its connection, is opened again behind the last row that was seen.
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
                if losses >= self._times:
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
