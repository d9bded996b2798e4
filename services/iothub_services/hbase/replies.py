# cython: annotation_typing=False
"""What HBase's gateway answers with: cells, rows, regions, families.

Knows how each is laid out in Thrift; not which call asked for it. Fields that are not known are passed over.
"""

from __future__ import annotations

from typing import NamedTuple

from iothub_services.hbase.thrift import BOOL, I32, I64, MAP, STOP, STRING, STRUCT, Reader, ThriftError


class Cell(NamedTuple):
    """One value, and the timestamp that it was stored with."""

    value: bytes
    timestamp: int


class Row(NamedTuple):
    """One row: its key, and its cells by `family:qualifier`."""

    key: bytes
    cells: dict[bytes, Cell]


class Scanner(NamedTuple):
    """A scanner: its number, which its gateway counts for all clients, and the number of the call that has opened it."""

    number: int
    opened_by: int


class Region(NamedTuple):
    """One region of a table: the rows from `start` to before `end` (b"": no bound), and the server that has it."""

    start: bytes
    end: bytes
    name: bytes
    server: bytes
    port: int


class Family(NamedTuple):
    """A column family as far as Thrift 1 shows it. `ttl_s`: 2**31 - 1 is for ever."""

    name: bytes
    versions: int
    bloom: bytes
    ttl_s: int


def read_nothing(reader: Reader) -> None:
    """Read the answer of a call without a result."""


def read_bool(reader: Reader) -> bool:
    return reader.byte() != 0


def read_i32(reader: Reader) -> int:
    return reader.i32()


def read_scanner(reader: Reader) -> Scanner:
    return Scanner(reader.i32(), reader.sequence())


def read_i64(reader: Reader) -> int:
    return reader.i64()


def read_names(reader: Reader) -> list[bytes]:
    return [reader.text() for _ in range(reader.values(STRING))]


def read_first_value(reader: Reader) -> bytes:
    """Read the value of the first cell; b"" when there is none."""
    cells = [_cell(reader) for _ in range(reader.values(STRUCT))]
    return cells[0].value if cells else b""


def read_rows(reader: Reader) -> list[Row]:
    return [_row(reader) for _ in range(reader.values(STRUCT))]


def read_row(reader: Reader) -> Row | None:
    rows = read_rows(reader)
    return rows[0] if rows else None


def read_regions(reader: Reader) -> list[Region]:
    return [_region(reader) for _ in range(reader.values(STRUCT))]


def read_families(reader: Reader) -> list[Family]:
    families = []
    for _ in range(reader.pairs(STRING, STRUCT)):
        reader.text()  # the name once more
        families.append(_family(reader))
    return families


def _cell(reader: Reader) -> Cell:
    value, timestamp = b"", 0
    while (mark := reader.field())[0] != STOP:
        if mark == (STRING, 1):
            value = reader.text()
        elif mark == (I64, 2):
            timestamp = reader.i64()
        else:
            reader.skip(mark[0])
    return Cell(value, timestamp)


def _row(reader: Reader) -> Row:
    key, cells = b"", {}
    while (mark := reader.field())[0] != STOP:
        if mark == (STRING, 1):
            key = reader.text()
        elif mark == (MAP, 2):
            for _ in range(reader.pairs(STRING, STRUCT)):
                column = reader.text()
                cells[column] = _cell(reader)
        else:
            reader.skip(mark[0])
    if not key:
        raise ThriftError("a row without a key")
    return Row(key, cells)


def _texts_and_numbers(reader: Reader) -> tuple[dict[int, bytes], dict[int, int]]:
    """Read a flat struct: its texts and its 32-bit numbers by field number."""
    texts: dict[int, bytes] = {}
    numbers: dict[int, int] = {}
    while (mark := reader.field())[0] != STOP:
        kind, number = mark
        if kind == STRING:
            texts[number] = reader.text()
        elif kind == I32:
            numbers[number] = reader.i32()
        else:
            reader.skip(kind)
    return texts, numbers


def _region(reader: Reader) -> Region:
    texts, numbers = _texts_and_numbers(reader)
    return Region(texts.get(1, b""), texts.get(2, b""), texts.get(4, b""), texts.get(6, b""), numbers.get(7, 0))


def _family(reader: Reader) -> Family:
    texts, numbers = _texts_and_numbers(reader)
    return Family(texts.get(1, b"").rstrip(b":"), numbers.get(2, 0), texts.get(5, b""), numbers.get(9, 0))


class Refusal(NamedTuple):
    """An exception that the gateway declared. `can_retry` is None where it does not say."""

    text: bytes
    can_retry: bool | None


def read_refusal(reader: Reader) -> Refusal:
    """Read IOError, IllegalArgument or AlreadyExists."""
    text, can_retry = b"", None
    while (mark := reader.field())[0] != STOP:
        if mark == (STRING, 1):
            text = reader.text()
        elif mark == (BOOL, 2):
            can_retry = reader.byte() != 0
        else:
            reader.skip(mark[0])
    return Refusal(text, can_retry)


def read_failure(reader: Reader) -> tuple[bytes, int]:
    """Read the message and the type of an exception of Thrift itself."""
    texts, numbers = _texts_and_numbers(reader)
    return texts.get(1, b""), numbers.get(2, 0)
