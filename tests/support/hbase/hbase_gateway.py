"""A Thrift 1 gateway of HBase in memory, at the level of frames: for tests of the client and of drivers.

Knows the few verbs that we use, on dictionaries. A test replaces an answer with `verbs[name]`, and sees every call in `seen`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from iothub_services.hbase import thrift

Answer = tuple[int, bytes] | None  # Thrift type and encoded value of the result; None for a call without one


class RefusedError(Exception):
    """Answer with an exception that the gateway declares: IOError (1), IllegalArgument (2), AlreadyExists (3)."""

    def __init__(self, text: str, number: int = 1, can_retry: bool | None = None) -> None:
        super().__init__(text)
        self.number = number
        self.can_retry = can_retry


class FakeGateway:
    """Tables: name -> row -> column -> (value, timestamp). `answer` turns a request's frame into the answer's.

    `now`: the timestamp of the last change, in milliseconds; each change is one later.
    """

    def __init__(self) -> None:
        self.tables: dict[bytes, dict[bytes, dict[bytes, tuple[bytes, int]]]] = {}
        self.seen: list[tuple[str, dict[int, Any]]] = []
        self.verbs: dict[str, Callable[[dict[int, Any]], Answer]] = {
            "append": self._append,
            "checkAndPut": self._check_and_put,
            "getRow": self._get_row,
            "getRowWithColumns": self._get_row,
            "getRows": self._get_rows,
            "getRowsWithColumns": self._get_rows,
            "mutateRow": self._mutate_row,
            "mutateRowTs": self._mutate_row,
            "mutateRows": self._mutate_rows,
            "mutateRowsTs": self._mutate_rows,
            "atomicIncrement": self._increment,
            "scannerOpenWithScan": self._open_scan,
            "scannerGetList": self._next_rows,
            "scannerClose": self._close_scan,
            "getThriftServerType": lambda _: (thrift.I32, thrift.i32(1)),
            "getTableNames": lambda _: (thrift.LIST, thrift.texts(sorted(self.tables))),
        }
        self._scanners: dict[int, tuple[bytes, list[bytes], object]] = {}
        self._opened = -1
        self.now = 1000

    def table(self, name: bytes) -> dict[bytes, dict[bytes, tuple[bytes, int]]]:
        if name not in self.tables:
            raise RefusedError(
                f"org.apache.hadoop.hbase.TableNotFoundException: {name.decode()}\n\tat x.y(Z.java:1)", 1, False
            )
        return self.tables[name]

    def answer(self, frame: bytes) -> bytes:
        """Return the answer to one request, without its length."""
        size = int.from_bytes(frame[4:8])
        name, sequence = frame[8 : 8 + size], frame[8 + size : 12 + size]
        arguments, _ = _struct(frame, 12 + size)
        if name != b"getThriftServerType":  # a client asks when it likes
            self.seen.append((name.decode(), arguments))
        kind = thrift.REPLY
        try:
            if name.decode() not in self.verbs:
                kind, body = thrift.EXCEPTION, _refusal(f"Invalid method name: '{name.decode()}'", None, kind=1)
            else:
                result = self.verbs[name.decode()](arguments)
                body = b"" if result is None else thrift.field(result[0], 0) + result[1]
        except RefusedError as error:
            body = thrift.field(thrift.STRUCT, error.number) + _refusal(str(error), error.can_retry)
        head = (thrift.VERSION_1 | kind).to_bytes(4) + thrift.text(name) + sequence
        return head + body + (thrift.END if kind == thrift.REPLY else b"")

    # --- verbs

    def _put(self, table: bytes, row: bytes, changes: list[dict[int, Any]], timestamp: int | None = None) -> None:
        self.now += 1
        cells = self.table(table).setdefault(row, {})
        for change in changes:
            if change.get(1):
                for column in [each for each in cells if each == change[2] or each.split(b":")[0] == change[2]]:
                    del cells[column]
            else:
                cells[change[2]] = (change[3], timestamp or self.now)
        if not cells:
            del self.table(table)[row]

    def _append(self, arguments: dict[int, Any]) -> Answer:
        table, row, (column,), (value,) = (arguments[1][number] for number in (1, 2, 3, 4))
        old = self.table(table).get(row, {}).get(column, (b"", 0))[0]
        self._put(table, row, [{2: column, 3: old + value}])
        return thrift.LIST, thrift.structs([_cell(old + value, self.now)])

    def _check_and_put(self, arguments: dict[int, Any]) -> Answer:
        cell = self.table(arguments[1]).get(arguments[2], {}).get(arguments[3])
        is_equal = (cell[0] if cell else None) == arguments.get(5)
        if is_equal:
            self._put(arguments[1], arguments[2], [arguments[6]])
        return thrift.BOOL, bytes((is_equal,))

    def _mutate_row(self, arguments: dict[int, Any]) -> Answer:
        timestamp = arguments.get(4)
        self._put(arguments[1], arguments[2], arguments[3], timestamp if isinstance(timestamp, int) else None)
        return None

    def _mutate_rows(self, arguments: dict[int, Any]) -> Answer:
        timestamp = arguments.get(3)
        for batch in arguments[2]:
            self._put(arguments[1], batch[1], batch[2], timestamp if isinstance(timestamp, int) else None)
        return None

    def _increment(self, arguments: dict[int, Any]) -> Answer:
        cell = self.table(arguments[1]).get(arguments[2], {}).get(arguments[3], (bytes(8), 0))
        value = thrift.i64(int.from_bytes(cell[0]) + arguments[4])
        self._put(arguments[1], arguments[2], [{2: arguments[3], 3: value}])
        return thrift.I64, value

    def _get_row(self, arguments: dict[int, Any]) -> Answer:
        return self._rows(arguments[1], [arguments[2]], arguments.get(3))

    def _get_rows(self, arguments: dict[int, Any]) -> Answer:
        return self._rows(arguments[1], arguments[2], arguments.get(3))

    def _rows(self, name: bytes, keys: list[bytes], wanted: object = None) -> Answer:
        rows = []
        for key in keys:
            cells = self._shown(name, key, wanted)
            if cells:
                pairs = [thrift.text(column) + _cell(*cell) for column, cell in sorted(cells.items())]
                head = struct.pack(">bbi", thrift.STRING, thrift.STRUCT, len(pairs))
                shown = thrift.field(thrift.MAP, 2) + head + b"".join(pairs)
                rows.append(thrift.field(thrift.STRING, 1) + thrift.text(key) + shown + thrift.END)
        return thrift.LIST, thrift.structs(rows)

    def _shown(self, name: bytes, key: bytes, wanted: object) -> dict[bytes, tuple[bytes, int]]:
        cells = self.table(name).get(key, {})
        if not isinstance(wanted, list):
            return cells
        return {each: cells[each] for each in cells if each in wanted or each.split(b":")[0] in wanted}

    def _open_scan(self, arguments: dict[int, Any]) -> Answer:
        name, options = arguments[1], arguments[2]
        start, stop = options.get(1, b""), options.get(2, b"")
        keys = [key for key in sorted(self.table(name)) if key >= start and (not stop or key < stop)]
        self._opened += 1
        self._scanners[self._opened] = (
            name,
            [key for key in keys if self._shown(name, key, options.get(4))],
            options.get(4),
        )
        return thrift.I32, thrift.i32(self._opened)

    def _next_rows(self, arguments: dict[int, Any]) -> Answer:
        if arguments[1] not in self._scanners:
            raise RefusedError("scanner ID is invalid", 2)
        name, keys, columns = self._scanners[arguments[1]]
        self._scanners[arguments[1]] = (name, keys[arguments[2] :], columns)
        return self._rows(name, keys[: arguments[2]], columns)

    def _close_scan(self, arguments: dict[int, Any]) -> Answer:
        if self._scanners.pop(arguments[1], None) is None:
            raise RefusedError("scanner ID is invalid", 2)
        return None


def split_frames(octets: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole frames in what arrived, without their lengths, and the rest."""
    frames = []
    while len(octets) >= 4 and len(octets) >= 4 + int.from_bytes(octets[:4]):
        size = int.from_bytes(octets[:4])
        frames.append(octets[4 : 4 + size])
        octets = octets[4 + size :]
    return frames, octets


def framed(frame: bytes) -> bytes:
    return thrift.text(frame)


def _cell(value: bytes, timestamp: int) -> bytes:
    return (
        thrift.field(thrift.STRING, 1)
        + thrift.text(value)
        + thrift.field(thrift.I64, 2)
        + thrift.i64(timestamp)
        + thrift.END
    )


def _refusal(text: str, can_retry: bool | None, kind: int | None = None) -> bytes:
    encoded = thrift.field(thrift.STRING, 1) + thrift.text(text.encode())
    if can_retry is not None:
        encoded += thrift.field(thrift.BOOL, 2) + bytes((can_retry,))
    if kind is not None:
        encoded += thrift.field(thrift.I32, 2) + thrift.i32(kind)
    return encoded + thrift.END


def _struct(frame: bytes, at: int) -> tuple[dict[int, Any], int]:
    found: dict[int, Any] = {}
    while frame[at] != thrift.STOP:
        kind, number = struct.unpack_from(">bh", frame, at)
        found[number], at = _value(kind, frame, at + 3)
    return found, at + 1


def _value(kind: int, frame: bytes, at: int) -> tuple[Any, int]:
    sizes = {thrift.BOOL: 1, thrift.I32: 4, thrift.I64: 8}
    if kind in sizes:
        return int.from_bytes(frame[at : at + sizes[kind]], signed=kind != thrift.BOOL), at + sizes[kind]
    if kind == thrift.STRING:
        end = at + 4 + int.from_bytes(frame[at : at + 4])
        return frame[at + 4 : end], end
    if kind == thrift.STRUCT:
        return _struct(frame, at)
    if kind == thrift.LIST:
        inner, count = struct.unpack_from(">bi", frame, at)
        values, at = [], at + 5
        for _ in range(count):
            value, at = _value(inner, frame, at)
            values.append(value)
        return values, at
    keys, inner, count = struct.unpack_from(">bbi", frame, at)
    pairs, at = {}, at + 6
    for _ in range(count):
        name, at = _value(keys, frame, at)
        pairs[name], at = _value(inner, frame, at)
    return pairs, at
