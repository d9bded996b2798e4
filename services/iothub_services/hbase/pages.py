"""Reading many rows in pieces of bounded size: a scan page by page, and a list of rows by their keys.

Knows no table. Thrift 1 counts rows and not bytes, so the number of rows in a page follows the size of those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from iothub.base.errors import BackendError, LocalProtocolError
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Scan, close_scan, next_rows, open_scan
from iothub_services.hbase.replies import Row

PAGE_BYTES = 1 << 20
_FIRST_ROWS = 16
_MOST_ROWS = 256  # small ones say nothing about those behind them: 64 KiB each still fit a frame
_ATTEMPTS = 4  # of one page


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
