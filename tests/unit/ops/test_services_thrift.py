"""The few Thrift calls by hand, against bytes that a gateway would send."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ops.services.thrift import Gateway, ThriftRefusedError

_REPLY, _EXCEPTION = 2, 3


def _string(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


def _reply(kind: int, body: bytes, verb: bytes = b"verb", sequence: int = 1) -> bytes:
    frame = struct.pack(">I", 0x80010000 | kind) + _string(verb) + struct.pack(">i", sequence) + body
    return _string(frame)


@contextmanager
def _gateway(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gateway, Callable[[], bytes]]]:
    """A client whose other end is a pair of sockets in this process: it has the answer before it has asked."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    monkeypatch.setattr(socket, "create_connection", lambda *_: ours)
    writer = threading.Thread(target=theirs.sendall, args=(answer,))
    writer.start()
    with theirs, Gateway(0) as gateway:
        yield gateway, lambda: theirs.recv(65536)
        writer.join(5)


def test_call_is_one_frame_with_its_arguments_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, flag, number, list of structs: all that we send."""
    with _gateway(_reply(_REPLY, b"\0"), monkeypatch) as (gateway, received):
        result = gateway.call("verb", b"t", True, 7, [{2: b"f:a"}])
        frame = received()

    assert result is None
    body = b"\x0b\x00\x01" + _string(b"t") + b"\x02\x00\x02\x01" + b"\x08\x00\x03\x00\x00\x00\x07"
    body += b"\x0f\x00\x04\x0c\x00\x00\x00\x01" + b"\x0b\x00\x02" + _string(b"f:a") + b"\0" + b"\0"
    assert frame == _string(struct.pack(">I", 0x80010001) + _string(b"verb") + struct.pack(">i", 1) + body)


def test_rows_come_back_as_lists_and_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row, column, cell with value and time stamp: TRowResult as the gateway sends it."""
    cell = b"\x0b\x00\x01" + _string(b"hello") + b"\x0a\x00\x02" + struct.pack(">q", 99) + b"\0"
    row = (
        b"\x0b\x00\x01"
        + _string(b"r")
        + b"\x0d\x00\x02\x0b\x0c"
        + struct.pack(">i", 1)
        + _string(b"f:a")
        + cell
        + b"\0"
    )
    body = b"\x0f\x00\x00\x0c" + struct.pack(">i", 1) + row + b"\0"

    with _gateway(_reply(_REPLY, body), monkeypatch) as (gateway, _):
        assert gateway.call("verb") == [{1: b"r", 2: {b"f:a": {1: b"hello", 2: 99}}}]


@pytest.mark.parametrize("kind", [_REPLY, _EXCEPTION])
def test_refusal_is_raised_with_its_first_line(monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    """A declared exception is a field other than 0; an undeclared one is a message of its own kind."""
    error = (
        b"\x0b\x00\x01" + _string(b"org.apache.hadoop.hbase.TableNotFoundException: t\n\tat a.b.C(D.java:1)") + b"\0"
    )
    body = b"\x0c\x00\x01" + error + b"\0" if kind == _REPLY else error

    with (
        _gateway(_reply(kind, body), monkeypatch) as (gateway, _),
        pytest.raises(ThriftRefusedError, match=r"TableNotFoundException: t$"),
    ):
        gateway.call("verb")


@pytest.mark.parametrize(
    "answer",
    [
        _reply(_REPLY, b"\0", verb=b"other"),
        _reply(_REPLY, b"\0", sequence=2),
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        _reply(_REPLY, b"\x7f\x00\x00"),
    ],
    ids=["other verb", "other call", "negative size", "huge size", "unknown type"],
)
def test_what_is_no_answer_to_this_call_is_refused(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """An answer that belongs to another call must never be taken for ours."""
    with _gateway(answer, monkeypatch) as (gateway, _), pytest.raises(ConnectionError, match="expected"):
        gateway.call("verb")
