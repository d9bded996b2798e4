"""Many rows in few calls: by timestamp, of bounded size; one row alone is one change."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError
from iothub_services.hbase.batches import change_rows
from iothub_services.hbase.calls import Mutation
from tests.support.timed_gateway import GatewayCaller, TimedGateway


@pytest.fixture
def caller() -> GatewayCaller:
    return GatewayCaller(TimedGateway(b"t"))


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
