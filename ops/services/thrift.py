"""A few calls to HBase's Thrift 1 gateway by hand: framed, binary protocol, one call at a time.

Knows only what readiness and smoke tests need: strings, numbers, lists and structs by field number. Not the hub's client.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ops.services.errors import ServicesError
from ops.services.places import HOST

# What is sent: a struct is a mapping from field numbers.
Sent: TypeAlias = "bytes | bool | int | Sequence[Sent] | Mapping[int, Sent]"
# What arrives: structs and maps are both dictionaries.
Received: TypeAlias = "bytes | bool | int | float | list[Received] | dict[Received, Received]"

VERSION_CALL = 0x80010001
_EXCEPTION = 3
_FRAME_LIMIT_BYTES = 64 << 20

_STOP, _BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64 = 0, 2, 3, 4, 6, 8, 10
_STRING, _STRUCT, _MAP, _SET, _LIST = 11, 12, 13, 14, 15
_FIXED = {_BOOL: ">?", _BYTE: ">b", _DOUBLE: ">d", _I16: ">h", _I32: ">i", _I64: ">q"}


class ThriftRefusedError(ServicesError):
    """The gateway answered, with an error."""


class Gateway:
    """One connection to the gateway."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection((HOST, port), timeout_s)
        self._calls = 0

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, verb: str, *arguments: Sent | None) -> Received | None:
        """Call a verb with its arguments as fields 1, 2, ... (None is left out); None when it returns nothing.

        Raises:
            ThriftRefusedError: The gateway answered with an exception of its own.
            OSError: No answer in time, or the connection is gone.
        """
        self._calls += 1
        head = struct.pack(">I", VERSION_CALL) + _string(verb.encode()) + struct.pack(">i", self._calls)
        frame = head + _fields({number: value for number, value in enumerate(arguments, 1) if value is not None})
        self._socket.sendall(_string(frame))
        (size,) = struct.unpack(">i", self._exactly(4))
        if not 0 < size <= _FRAME_LIMIT_BYTES:
            raise ConnectionError(f"expected a frame of at most {_FRAME_LIMIT_BYTES} bytes, got one of {size}")
        return self._answer(verb, _Reader(self._exactly(size)))

    def _answer(self, verb: str, reader: _Reader) -> Received | None:
        kind = reader.fixed(">I") & 0xFF
        name, sequence = reader.string(), reader.fixed(">i")
        if (name, sequence) != (verb.encode(), self._calls):
            raise ConnectionError(f"expected the answer to {verb} {self._calls}, got one to {name!r} {sequence}")
        fields = reader.struct()
        if kind == _EXCEPTION:
            raise ThriftRefusedError(f"{verb}: {_text(fields)}")
        refusals = [value for number, value in fields.items() if number != 0]
        if refusals:
            raise ThriftRefusedError(f"{verb}: {_text(refusals[0])}")
        return fields.get(0)

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            piece = self._socket.recv(size - len(got))
            if not piece:
                raise ConnectionError("the gateway closed the connection")
            got += piece
        return bytes(got)


def _text(refusal: Received) -> str:
    """Return the first line of a Java exception."""
    message = refusal.get(1) if isinstance(refusal, dict) else refusal
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    return text.partition("\n")[0]


def _string(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


def _kind(value: Sent) -> int:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _I32
    if isinstance(value, bytes):
        return _STRING
    return _STRUCT if isinstance(value, Mapping) else _LIST


def _encoded(value: Sent) -> bytes:
    if isinstance(value, bool):
        return struct.pack(">?", value)
    if isinstance(value, int):
        return struct.pack(">i", value)
    if isinstance(value, bytes):
        return _string(value)
    if isinstance(value, Mapping):
        return _fields(value)
    kind = _kind(value[0]) if value else _STRUCT
    return struct.pack(">bi", kind, len(value)) + b"".join(map(_encoded, value))


def _fields(fields: Mapping[int, Sent]) -> bytes:
    encoded = (struct.pack(">bh", _kind(value), number) + _encoded(value) for number, value in fields.items())
    return b"".join(encoded) + struct.pack(">b", _STOP)


class _Reader:
    """Reads one frame from its beginning to its end."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0

    def fixed(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._frame, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def string(self) -> bytes:
        size = self.fixed(">i")
        start, self._at = self._at, self._at + size
        return self._frame[start : self._at]

    def struct(self) -> dict[Received, Received]:
        found: dict[Received, Received] = {}
        while (kind := self.fixed(">b")) != _STOP:
            number = self.fixed(">h")
            found[number] = self._value(kind)
        return found

    def _value(self, kind: int) -> Received:
        if kind in _FIXED:
            return self.fixed(_FIXED[kind])
        if kind == _STRING:
            return self.string()
        if kind == _STRUCT:
            return self.struct()
        if kind == _MAP:
            keys, values, count = self.fixed(">b"), self.fixed(">b"), self.fixed(">i")
            return {self._value(keys): self._value(values) for _ in range(count)}
        if kind in (_LIST, _SET):
            inner, count = self.fixed(">b"), self.fixed(">i")
            return [self._value(inner) for _ in range(count)]
        raise ConnectionError(f"expected a Thrift type, got {kind}")
