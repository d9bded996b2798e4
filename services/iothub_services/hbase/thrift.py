# cython: annotation_typing=False
"""Thrift's binary protocol, as far as HBase's gateway needs it: pieces of requests as bytes, and a reader that never reads past a frame.

Knows no verb of HBase and no connection. Written by hand: a dozen calls need few types, and composing bytes is several times
cheaper than filling generic structs. The reader is compiled: it runs for every answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

VERSION_1 = 0x80010000
CALL, REPLY, EXCEPTION = 1, 2, 3

STOP, BOOL, BYTE, DOUBLE, I16, I32, I64 = 0, 2, 3, 4, 6, 8, 10
STRING, STRUCT, MAP, SET, LIST = 11, 12, 13, 14, 15

_SIZES = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8}
_LEAST = {**_SIZES, STRING: 4, STRUCT: 1, MAP: 6, SET: 5, LIST: 5}  # bytes of the smallest value
_NESTING = 16

_U32 = Struct(">I")
_I32 = Struct(">i")
_I64 = Struct(">q")
_HEAD = Struct(">bh")
_LIST_HEAD = Struct(">bi")
_MAP_HEAD = Struct(">bbi")

END = b"\0"  # of a struct


class ThriftError(Exception):
    """What arrived is not what Thrift, or this call, can be answered with."""


# --- pieces of a request


def text(raw: bytes) -> bytes:
    """Encode bytes with their length."""
    return _U32.pack(len(raw)) + raw


def field(kind: int, number: int) -> bytes:
    """Encode the mark before a field's value."""
    return _HEAD.pack(kind, number)


def i32(value: int) -> bytes:
    return _I32.pack(value)


def i64(value: int) -> bytes:
    return _I64.pack(value)


def texts(values: Sequence[bytes]) -> bytes:
    """Encode a list of bytes."""
    return _LIST_HEAD.pack(STRING, len(values)) + b"".join([text(value) for value in values])


def one_text(size: int) -> bytes:
    """Encode what goes before the bytes of a list that has one value."""
    return _LIST_HEAD.pack(STRING, 1) + _U32.pack(size)


def structs(values: Sequence[bytes]) -> bytes:
    """Encode a list of structs that are encoded already."""
    return _LIST_HEAD.pack(STRUCT, len(values)) + b"".join(values)


def text_map(pairs: Mapping[bytes, bytes]) -> bytes:
    """Encode a map of bytes to bytes."""
    parts = [text(part) for pair in pairs.items() for part in pair]
    return _MAP_HEAD.pack(STRING, STRING, len(pairs)) + b"".join(parts)


# --- an answer


class Reader:
    """Reads values of one frame, in order. Invariant: nothing outside the frame is read, no count is believed that cannot fit."""

    def __init__(self, frame: bytes, at: int = 0) -> None:
        self._frame = frame
        self._at = at

    def field(self) -> tuple[int, int]:
        """Return kind and number of the next field; (STOP, 0) at the struct's end."""
        kind = self.byte()
        if not kind:  # STOP
            return STOP, 0
        frame, at = self._frame, self._take(2)
        return kind, (frame[at] << 8) | frame[at + 1]

    def sequence(self) -> int:
        """Return the number of the message whose frame this is, wherever the reader stands: it is behind version and name."""
        at = 8 + int.from_bytes(self._frame[4:8], "big")
        return int.from_bytes(self._frame[at : at + 4], "big")

    def byte(self) -> int:
        return self._frame[self._take(1)]

    def i32(self) -> int:
        at = self._take(4)
        return int.from_bytes(self._frame[at : at + 4], "big", signed=True)

    def i64(self) -> int:
        (value,) = _I64.unpack_from(self._frame, self._take(8))
        return int(value)

    def text(self) -> bytes:
        size = self.i32()
        if size < 0:
            raise ThriftError(f"a length of {size}")
        start = self._take(size)
        return self._frame[start : start + size]

    def values(self, kind: int) -> int:
        """Begin a list, or a set, of `kind`; return how many values follow."""
        found = self.byte()
        count = self._count(_LEAST.get(kind, 1))
        if count and found != kind:
            raise ThriftError(f"a list of type {found} in place of {kind}")
        return count

    def pairs(self, key: int, value: int) -> int:
        """Begin a map; return how many pairs follow."""
        found = self.byte(), self.byte()
        count = self._count(_LEAST.get(key, 1) + _LEAST.get(value, 1))
        if count and found != (key, value):
            raise ThriftError(f"a map of types {found} in place of {(key, value)}")
        return count

    def skip(self, kind: int, nesting: int = 0) -> None:
        """Pass over a value that nobody asked for: a newer gateway may send more than we know."""
        if nesting > _NESTING:
            raise ThriftError(f"structs nested deeper than {_NESTING}")
        if kind in _SIZES:
            self._take(_SIZES[kind])
        elif kind == STRING:
            self.text()
        elif kind == STRUCT:
            self._skip_struct(nesting)
        elif kind in (LIST, SET):
            inner = self.byte()
            self._skip_many((inner,), nesting)
        elif kind == MAP:
            kinds = self.byte(), self.byte()
            self._skip_many(kinds, nesting)
        else:
            raise ThriftError(f"type {kind}, which does not exist")

    def _skip_struct(self, nesting: int) -> None:
        while (mark := self.field())[0] != STOP:
            self.skip(mark[0], nesting + 1)

    def _skip_many(self, kinds: tuple[int, ...], nesting: int) -> None:
        for _ in range(self._count(sum(_LEAST.get(kind, 1) for kind in kinds))):
            for kind in kinds:
                self.skip(kind, nesting + 1)

    def _count(self, least_bytes: int) -> int:
        count = self.i32()
        if not 0 <= count * least_bytes <= len(self._frame) - self._at:
            raise ThriftError(f"a count of {count} with {len(self._frame) - self._at} bytes left")
        return count

    def _take(self, size: int) -> int:
        start = self._at
        if start + size > len(self._frame):
            raise ThriftError(f"ends {start + size - len(self._frame)} bytes too early")
        self._at = start + size
        return start
