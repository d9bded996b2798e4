"""Many rows in pieces of bounded size: a scan read page by page, the first rows of many scans, rows changed in batches.

Knows no table. Thrift 1 counts rows and not bytes, so the number of rows in a page follows the size of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from iothub.base.errors import BackendError, LocalProtocolError
from iothub_services.hbase.caller import Caller, asked_again
from iothub_services.hbase.calls import (
    Call,
    Mutation,
    Scan,
    close_scan,
    mutate_row,
    mutate_rows,
    next_rows,
    open_scan,
)
from iothub_services.hbase.replies import Row, Scanner

PAGE_BYTES = 1 << 20
_FIRST_ROWS = 16
_MOST_ROWS = 256  # small ones say nothing about those behind them: 64 KiB each still fit a frame
_ATTEMPTS = 4  # of one page
_CALLS = 16  # of about a megabyte, on their way at once


def pages(caller: Caller, scan: Scan, page_bytes: int = PAGE_BYTES) -> Iterator[list[Row]]:
    """Yield the rows of a scan (ascending) in pages of about `page_bytes`; a row alone may be larger.

    A scanner that was lost, with its gateway for one, is opened again behind the last row. So is one whose page was too large for a
    frame, which looks like a lost connection: the next page has one row. Raises BackendError when that does not help.
    """
    count, failures = _FIRST_ROWS, 0
    while True:
        try:
            for rows in _opened(caller, scan, count, page_bytes):
                failures = 0
                scan = replace(scan, start=rows[-1].key + b"\0")
                yield rows
        except BackendError as error:
            failures += 1
            if not error.retryable or failures == _ATTEMPTS:
                raise
            count = 1
        else:
            return


def _opened(caller: Caller, scan: Scan, count: int, page_bytes: int) -> Iterator[list[Row]]:
    """Yield the pages of one scanner."""
    scanner = caller.call(open_scan(scan))
    try:
        while rows := caller.call(next_rows(scanner, count, scan.pin)):
            yield rows
            if len(rows) < count:
                break
            fitting = page_bytes * len(rows) // max(sum(map(row_bytes, rows)), 1)
            count = max(1, min(fitting, 2 * count, _MOST_ROWS))
    finally:
        with suppress(
            BackendError, LocalProtocolError
        ):  # the latter: forgotten half-way, and tidied up in another thread
            caller.call(close_scan(scanner, scan.pin))


def row_bytes(row: Row) -> int:
    """Return about how many bytes a row takes in an answer."""
    return len(row.key) + sum([len(column) + len(cell.value) for column, cell in row.cells.items()])


def chunks(sizes: Sequence[int], page_bytes: int = PAGE_BYTES, count: int = _MOST_ROWS) -> Iterator[slice]:
    """Cut a list whose items have these sizes into pieces of at most `count` items and about `page_bytes`; one item alone may be larger."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (total + size > page_bytes or index - start >= count):
            yield slice(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def first_rows(caller: Caller, scans: Sequence[Scan], count: int) -> list[list[Row] | BackendError]:
    """Return the first rows of each scan, `count` at most, or its error: all scanners are opened, read once and closed, pipelined.

    Those that were lost before they were read are opened again.
    """
    return asked_again(lambda asked: _first_rows(caller, asked, count), scans, _ATTEMPTS - 1)


def _first_rows(caller: Caller, scans: Sequence[Scan], count: int) -> list[list[Row] | BackendError]:
    opened = caller.call_many([open_scan(scan) for scan in scans])
    reads: list[Call[list[Row] | None]] = []
    for scan, scanner in zip(scans, opened, strict=True):
        if isinstance(scanner, Scanner):
            reads += next_rows(scanner, count, scan.pin), close_scan(scanner, scan.pin)
    found = iter(caller.call_many(reads)[::2])
    outcomes = [next(found) if isinstance(scanner, Scanner) else scanner for scanner in opened]
    return [[] if outcome is None else outcome for outcome in outcomes]


def change_rows(caller: Caller, table: bytes, places: Mapping[int | None, Sequence[Mutation]]) -> None:
    """Change rows, by timestamp (None: HBase's own time). No row may be there twice: nobody says which change comes first.

    Raises BackendError: of the first call that failed; the others are done all the same.
    """
    made = [
        _change(table, mutations[chunk], timestamp)
        for timestamp, mutations in places.items()
        for chunk in chunks([_size(each) for each in mutations])
    ]
    for start in range(0, len(made), _CALLS):
        caller.call_all(made[start : start + _CALLS])


def _change(table: bytes, mutations: Sequence[Mutation], timestamp: int | None) -> Call[None]:
    """One row alone is changed as a whole or not at all, and a refusal says so."""
    if len(mutations) == 1:
        row, puts, deletes = mutations[0]
        return mutate_row(table, row, puts, deletes, timestamp)
    return mutate_rows(table, mutations, timestamp)


def _size(mutation: Mutation) -> int:
    return len(mutation.row) + sum(map(len, mutation.puts.values()))
