"""Pages of bounded size, whatever the rows; scanners that are lost in the middle; lists cut by size; many rows changed in few calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iothub.base.errors import BackendError
from iothub_services.hbase.calls import Mutation, Scan, mutate_rows
from iothub_services.hbase.pages import change_rows, chunks, pages, row_bytes
from iothub_services.hbase.replies import Cell, Row
from tests.support.hbase.hbase_gateway import Answer, RefusedError
from tests.support.hbase.timed_gateway import GatewayCaller, TimedGateway

SMALL, LARGE = b"x", b"x" * 10_000


@pytest.fixture
def caller() -> GatewayCaller:
    return GatewayCaller(TimedGateway(b"t"))


def fill(caller: GatewayCaller, *values: bytes) -> list[bytes]:
    keys = [b"%05d" % number for number in range(len(values))]
    caller.call(mutate_rows(b"t", [Mutation(key, {b"f:a": value}) for key, value in zip(keys, values, strict=True)]))
    return keys


def test_pages_grow_with_small_rows_and_shrink_with_large_ones(caller: GatewayCaller) -> None:
    """Thrift 1 counts rows, so the bytes of the last page decide about the next."""
    keys = fill(caller, *[SMALL] * 30, *[LARGE] * 60, *[SMALL] * 700)

    found = list(pages(caller, Scan(b"t"), page_bytes=50_000))

    assert [row.key for page in found for row in page] == keys
    assert [len(page) for page in found] == [16, 32, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 8, 16, 32, 64, 128, 256, 194]
    assert len(caller.gateway._scanners) == 0


def test_nothing_is_one_look(caller: GatewayCaller) -> None:
    assert list(pages(caller, Scan(b"t"))) == []
    assert [verb for verb, _ in caller.gateway.seen] == ["scannerOpenWithScan", "scannerGetList", "scannerClose"]


def test_lost_scanner_is_opened_again_behind_the_last_row(caller: GatewayCaller) -> None:
    """The gateway has gone, or the consumer was slow: every row once, in order."""
    keys = fill(caller, *[SMALL] * 100)
    found = pages(caller, Scan(b"t", b"00003"), page_bytes=100)

    first = next(found)
    caller.gateway._scanners.clear()
    rest = [row.key for page in found for row in page]

    assert [row.key for row in first] + rest == keys[3:]


def test_page_that_is_too_large_for_a_frame_is_read_row_by_row(caller: GatewayCaller) -> None:
    """It looks like a lost connection each time."""
    keys = fill(caller, *[LARGE] * 20)
    read: Callable[[dict[int, Any]], Answer] = caller.gateway.verbs["scannerGetList"]

    def narrow(arguments: dict[int, Any]) -> Answer:
        if arguments[2] > 2:
            raise RefusedError("java.io.IOException: connection reset")
        return read(arguments)

    caller.gateway.verbs["scannerGetList"] = narrow
    found = list(pages(caller, Scan(b"t"), page_bytes=15_000))

    assert [row.key for page in found for row in page] == keys
    assert max(map(len, found)) <= 2


def test_gateway_that_does_not_come_back_ends_the_scan(caller: GatewayCaller) -> None:
    """After some attempts, with its error; a final refusal at once."""
    fill(caller, SMALL)
    caller.fate = lambda _verb: "refused"
    with pytest.raises(BackendError, match="not there"):
        list(pages(caller, Scan(b"t")))

    caller.fate = lambda _verb: "done"
    with pytest.raises(BackendError, match="TableNotFound"):
        list(pages(caller, Scan(b"other")))
    assert [verb for verb, _ in caller.gateway.seen].count("scannerOpenWithScan") == 1


def test_scan_that_is_left_early_gives_its_scanner_back(caller: GatewayCaller) -> None:
    fill(caller, *[SMALL] * 100)
    found = pages(caller, Scan(b"t"))
    next(found)
    found.close()  # type: ignore[attr-defined]

    assert caller.gateway._scanners == {}


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ([], []),
        ([9], [[9]]),
        ([99, 1, 2], [[99], [1, 2]]),
        ([4, 4, 4, 4], [[4, 4], [4, 4]]),
        ([1, 1, 1, 1, 1], [[1, 1, 1], [1, 1]]),
        ([0, 10, 0, 10], [[0, 10, 0], [10]]),
    ],
)
def test_lists_are_cut_by_size_and_count(sizes: list[int], cut: list[list[int]]) -> None:
    """Ten bytes, three items; one alone may be larger."""
    assert [sizes[chunk] for chunk in chunks(sizes, 10, 3)] == cut


def test_row_counts_key_columns_and_values() -> None:
    assert row_bytes(Row(b"key", {b"f:a": Cell(b"12345", 1)})) == 11


# --- changing


def verbs(caller: GatewayCaller) -> list[str]:
    return [verb for verb, _ in caller.gateway.seen]


def puts(count: int, value: bytes = b"x") -> list[Mutation]:
    return [Mutation(b"%04d" % number, {b"f:a": value}) for number in range(count)]


def test_rows_of_one_timestamp_go_together(caller: GatewayCaller) -> None:
    rows = puts(10)

    change_rows(caller, b"t", {5: rows[:4], 7: rows[4:9], None: rows[9:]})

    assert verbs(caller) == ["mutateRowsTs", "mutateRowsTs", "mutateRow"]
    assert [cells[b"f:a"][1] for _, cells in sorted(caller.gateway.tables[b"t"].items())][:9] == [5] * 4 + [7] * 5


def test_calls_are_bounded_by_rows_and_bytes(caller: GatewayCaller) -> None:
    change_rows(caller, b"t", {1: puts(600)})
    change_rows(caller, b"t", {2: puts(5, b"x" * 600_000)})

    assert [len(arguments[2]) for verb, arguments in caller.gateway.seen if verb == "mutateRowsTs"] == [256, 256, 88]
    assert verbs(caller)[3:] == ["mutateRowTs"] * 5


def test_nothing_is_no_call(caller: GatewayCaller) -> None:
    change_rows(caller, b"t", {})
    change_rows(caller, b"t", {None: []})

    assert verbs(caller) == []


def test_first_failure_is_raised_when_the_others_are_done(caller: GatewayCaller) -> None:
    """It may be written: others are."""
    fates = iter(["done", "refused", "done"])
    caller.fate = lambda _verb: next(fates)

    with pytest.raises(BackendError, match="not there") as caught:
        change_rows(caller, b"t", {1: puts(1), 2: puts(2)[1:], 3: puts(3)[2:]})

    assert caught.value.is_written
    assert len(caller.gateway.tables[b"t"]) == 2
