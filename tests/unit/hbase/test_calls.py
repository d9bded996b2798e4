"""Every call against the fake gateway at the level of bytes, and golden bytes of those that are on a hot path."""

from __future__ import annotations

from typing import TypeVar

import pytest

from iothub.base.errors import BackendError, LocalProtocolError
from iothub_services.hbase import calls, thrift
from iothub_services.hbase.calls import Call, Mutation, Scan
from iothub_services.hbase.refusals import HBaseError
from iothub_services.hbase.replies import Cell, Family, Region, Row, Scanner
from tests.support.hbase import table_calls
from tests.support.hbase.hbase_gateway import FakeGateway, RefusedError

T = TypeVar("T")


@pytest.fixture
def gateway() -> FakeGateway:
    made = FakeGateway()
    made.tables[b"t"] = {}
    return made


def ask(gateway: FakeGateway, call: Call[T]) -> T:
    frame = call.frame(7)
    assert len(frame) == call.size
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    return call.decode(gateway.answer(frame[4:]))


def test_append_is_these_bytes() -> None:
    """What the gateway of HBase 2.6 was seen to accept."""
    call = calls.append(b"t", b"r", b"m:enq", b"v")

    assert call.frame(5).hex(" ", -4) == (
        "00000045 80010001 00000006 61707065 6e640000 00050c00 010b0001 00000001 740b0002 00000001 "
        "720f0003 0b000000 01000000 056d3a65 6e710f00 040b0000 00010000 00017600 00"
    )


def test_append_answers_with_the_cell(gateway: FakeGateway) -> None:
    """Or with what a coprocessor puts there."""
    assert ask(gateway, calls.append(b"t", b"r", b"f:a", b"x")) == b"x"
    assert ask(gateway, calls.append(b"t", b"r", b"f:a", b"y")) == b"xy"


def test_append_without_a_cell_answers_with_nothing(gateway: FakeGateway) -> None:
    """A coprocessor may answer with an empty result."""
    gateway.verbs["append"] = lambda _: (thrift.LIST, thrift.structs([]))

    assert ask(gateway, calls.append(b"t", b"r", b"f:a", b"x")) == b""


def test_check_and_put_takes_absent_or_a_value(gateway: FakeGateway) -> None:
    """The one compare-and-swap of Thrift 1."""
    claim = calls.check_and_put(b"t", b"r", b"f:a", None, (b"f:a", b"1"))

    assert [ask(gateway, claim), ask(gateway, claim)] == [True, False]
    assert ask(gateway, calls.check_and_put(b"t", b"r", b"f:a", b"1", (b"f:a", b"2"))) is True


def test_check_and_put_cannot_expect_an_empty_value() -> None:
    """The real gateway takes b"" for "absent", so an empty cell could never be told from none."""
    with pytest.raises(LocalProtocolError, match="version byte"):
        calls.check_and_put(b"t", b"r", b"f:a", b"", (b"f:a", b"1"))


def test_mutations_put_and_delete(gateway: FakeGateway) -> None:
    """One row or many, with a timestamp of ours or the server's."""
    ask(gateway, calls.mutate_row(b"t", b"r1", {b"f:a": b"1", b"f:b": b"2"}, timestamp=77))
    ask(gateway, calls.mutate_row(b"t", b"r1", {}, (b"f:b",)))
    ask(
        gateway,
        calls.mutate_rows(b"t", [Mutation(b"r2", {b"f:a": b"3"}), Mutation(b"r3", {b"f:a": b"4"})], timestamp=9),
    )

    assert ask(gateway, calls.get_row(b"t", b"r1")) == Row(b"r1", {b"f:a": Cell(b"1", 77)})
    rows = ask(gateway, calls.get_rows(b"t", [b"r3", b"nobody", b"r2"]))
    assert rows == [Row(b"r3", {b"f:a": Cell(b"4", 9)}), Row(b"r2", {b"f:a": Cell(b"3", 9)})]


def test_get_row_asks_for_columns_and_carries_attributes(gateway: FakeGateway) -> None:
    """Attributes are how a coprocessor is told what to read."""
    ask(gateway, calls.mutate_row(b"t", b"r", {b"f:a": b"1", b"g:b": b"2"}))

    row = ask(gateway, calls.get_row(b"t", b"r", (b"g",), {b"from": b"7"}))

    assert row is not None
    assert row.cells.keys() == {b"g:b"}
    assert gateway.seen[-1] == ("getRowWithColumns", {1: b"t", 2: b"r", 3: [b"g"], 4: {b"from": b"7"}})
    assert ask(gateway, calls.get_row(b"t", b"nobody")) is None


def test_get_rows_asks_for_columns(gateway: FakeGateway) -> None:
    """The same for many."""
    ask(gateway, calls.mutate_row(b"t", b"r", {b"f:a": b"1", b"f:b": b"2"}))

    (row,) = ask(gateway, calls.get_rows(b"t", [b"r"], (b"f:b",)))

    assert row.cells.keys() == {b"f:b"}


def test_increment_counts(gateway: FakeGateway) -> None:
    """64 bits, big-endian."""
    ask(gateway, calls.increment(b"t", b"r", b"f:n", 5))

    assert ask(gateway, calls.increment(b"t", b"r", b"f:n", 2)) == 7


def test_scan_opens_reads_and_closes(gateway: FakeGateway) -> None:
    """Bounds, filter: as the gateway names them."""
    for name in (b"a", b"b", b"c", b"d"):
        ask(gateway, calls.mutate_row(b"t", name, {b"f:a": name}))
    scan = Scan(b"t", b"b", b"d", (b"f",), 10, b"KeyOnlyFilter()")

    scanner = ask(gateway, calls.open_scan(scan))

    assert gateway.seen[-1][1] == {1: b"t", 2: {1: b"b", 2: b"d", 4: [b"f"], 5: 10, 6: b"KeyOnlyFilter()"}}
    assert [row.key for row in ask(gateway, calls.next_rows(scanner, 5, b""))] == [b"b", b"c"]
    assert ask(gateway, calls.next_rows(scanner, 5, b"")) == []
    ask(gateway, calls.close_scan(scanner, b""))


def test_scanner_that_is_gone_can_be_opened_anew(gateway: FakeGateway) -> None:
    """The gateway forgets scanners when it restarts."""
    with pytest.raises(HBaseError, match="scanner ID") as caught:
        ask(gateway, calls.next_rows(Scanner(4, 7), 5, b""))

    assert (caught.value.retryable, caught.value.is_written) == (True, False)


def test_tables_are_listed_and_described(gateway: FakeGateway) -> None:
    """As far as Thrift 1 shows them; fields that we do not know are passed over."""
    known = thrift.field(thrift.STRING, 1) + thrift.text(b"f:") + thrift.field(thrift.I32, 2) + thrift.i32(1)
    known += thrift.field(thrift.STRING, 5) + thrift.text(b"ROW") + thrift.field(thrift.I32, 9) + thrift.i32(60)
    unknown = thrift.field(thrift.BOOL, 8) + b"\1" + thrift.field(thrift.LIST, 30) + thrift.structs([thrift.END])
    unknown += (
        thrift.field(thrift.MAP, 31) + thrift.text_map({b"a": b"b"}) + thrift.field(thrift.STRUCT, 32) + thrift.END
    )
    head = bytes((thrift.STRING, thrift.STRUCT)) + thrift.i32(1) + thrift.text(b"f:")
    gateway.verbs["getColumnDescriptors"] = lambda _: (thrift.MAP, head + known + unknown + thrift.END)
    region = (
        thrift.field(thrift.STRING, 2) + thrift.text(b"\x80") + thrift.field(thrift.STRING, 6) + thrift.text(b"host")
    )
    region += thrift.field(thrift.I32, 7) + thrift.i32(16020) + thrift.END
    gateway.verbs["getTableRegions"] = lambda _: (thrift.LIST, thrift.structs([region]))
    gateway.verbs["isTableEnabled"] = lambda _: (thrift.BOOL, b"\1")

    assert ask(gateway, calls.table_names()) == [b"t"]
    assert ask(gateway, calls.families(b"t")) == [Family(b"f", 1, b"ROW", 60)]
    assert ask(gateway, calls.regions(b"t")) == [Region(b"", b"\x80", b"", b"host", 16020)]
    assert ask(gateway, calls.is_enabled(b"t")) is True


def test_simple_tables_come_and_go(gateway: FakeGateway) -> None:
    """For tests; ours need the Java program."""
    for name in ("createTable", "disableTable", "enableTable", "deleteTable"):
        gateway.verbs[name] = lambda _: None

    ask(gateway, table_calls.create_table(b"n", (b"f",)))
    for call in (table_calls.disable_table(b"n"), table_calls.enable_table(b"n"), table_calls.delete_table(b"n")):
        ask(gateway, call)

    assert gateway.seen[0] == ("createTable", {1: b"n", 2: [{1: b"f:", 2: 1}]})


def test_verb_that_the_gateway_does_not_know_is_told() -> None:
    """Nothing was written, and asking again changes nothing."""
    gateway = FakeGateway()
    del gateway.verbs["append"]

    with pytest.raises(HBaseError, match="Invalid method name") as caught:
        ask(gateway, calls.append(b"t", b"r", b"f:a", b"x"))

    assert (caught.value.retryable, caught.value.is_written) == (False, False)


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        (thrift.I32, thrift.i32(1), "type 8"),
        (thrift.LIST, b"\x0c" + thrift.i32(1 << 30), "count"),
        (thrift.LIST, b"\x0b" + thrift.i32(1) + thrift.text(b""), "list of type 11"),
        (thrift.LIST, thrift.structs([thrift.field(thrift.STRING, 1) + thrift.i32(-5)]), "length of -5"),
        (thrift.LIST, thrift.structs([thrift.field(99, 9) + thrift.END]), "type 99"),
        (thrift.LIST, thrift.structs([thrift.END]), "without a key"),
    ],
)
def test_answer_that_is_no_thrift_is_refused_by_name(gateway: FakeGateway, kind: int, value: bytes, what: str) -> None:
    """Never misread, whatever a stranger on that port sends."""
    gateway.verbs["getRows"] = lambda _: (kind, value)

    with pytest.raises(BackendError, match=what) as caught:
        ask(gateway, calls.get_rows(b"t", [b"r"]))

    assert (caught.value.retryable, caught.value.is_written) == (False, False)


def test_nested_answer_is_not_followed_for_ever(gateway: FakeGateway) -> None:
    """A struct within a struct within ... a small frame must not exhaust the stack."""
    gateway.verbs["append"] = lambda _: (thrift.LIST, thrift.structs([thrift.field(thrift.STRUCT, 9) * 2000]))

    with pytest.raises(BackendError, match="nested deeper"):
        ask(gateway, calls.append(b"t", b"r", b"f:a", b"x"))


def test_row_that_is_deleted_and_put_at_once_may_be_left_half_done(gateway: FakeGateway) -> None:
    """The gateway makes two operations of it, so a refusal of one says nothing of the other."""

    def refuse(_: object) -> None:
        raise RefusedError("org.apache.hadoop.hbase.NotServingRegionException: t is not online", 1, True)

    gateway.verbs["mutateRow"] = refuse
    both = calls.mutate_row(b"t", b"r", {b"f:a": b"1"}, (b"f:b",))
    one = calls.mutate_row(b"t", b"r", {b"f:a": b"1"})

    with pytest.raises(HBaseError) as half:
        ask(gateway, both)
    with pytest.raises(HBaseError) as whole:
        ask(gateway, one)

    assert (half.value.is_written, whole.value.is_written) == (True, False)
