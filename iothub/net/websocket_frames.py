"""RFC 6455 framing, server side: strict, and without ever holding more of a frame than its header or a control frame.

Knows no HTTP and no sockets. Payload is handed on as it arrives, whatever frame boundaries say: Control Packets may span frames and
share them [MQTT-6.0.0-2].
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from enum import IntEnum

MAX_CONTROL_BYTES = 125
MAX_PONG_BYTES = 4096  # per receive; a flood of pings is answered up to here (RFC 6455 section 5.5.3 allows to skip)


class Opcode(IntEnum):
    """RFC 6455 section 11.8."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """RFC 6455 section 7.4.1: the codes that this server sends."""

    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_PAYLOAD = 1007
    TOO_BIG = 1009


KNOWN_CLOSE_CODES = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})


class FrameError(Exception):
    """The peer broke the framing; `code` is the close code that says how. `data` came before."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


_XOR = [bytes(value ^ key for value in range(256)) for key in range(256)]


def unmask_plain(data: bytes, key: bytes) -> bytes:
    """XOR with the repeated key of four bytes; O(n) at the speed of `bytes.translate`, one quarter at a time."""
    if len(data) <= 256:  # one big integer is quicker for short ones
        size = len(data)
        repeated = (key * (size // 4 + 1))[:size]
        return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")
    plain = bytearray(len(data))
    for lane in range(4):
        plain[lane::4] = data[lane::4].translate(_XOR[key[lane]])
    return bytes(plain)


def _fastest_unmask() -> Callable[[bytes, bytes], bytes]:
    """The compiled one, where it is there and wanted."""
    if os.environ.get("IOTHUB_PURE_PYTHON", "") != "1":
        with contextlib.suppress(ImportError):
            compiled: Callable[[bytes, bytes], bytes] = importlib.import_module("iothub.engine.mask").unmask
            return compiled
    return unmask_plain


unmask = _fastest_unmask()


def encode_frame(opcode: Opcode, payload: bytes) -> bytes:
    """One unfragmented, unmasked frame, as servers send them."""
    size = len(payload)
    first = 0x80 | opcode
    if size < 126:
        return bytes((first, size)) + payload
    if size < 1 << 16:
        return bytes((first, 126)) + size.to_bytes(2, "big") + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload


def encode_close(code: CloseCode | int) -> bytes:
    return encode_frame(Opcode.CLOSE, int(code).to_bytes(2, "big"))


class FrameReader:
    """Frames of one client as their bytes arrive.

    Invariants: `_held` is an incomplete header or control frame (< 140 bytes); `_left` payload bytes of the current data frame are to come.
    `close_code` is set once the peer has sent Close (1005: without a code).
    """

    __slots__ = ("_held", "_is_in_message", "_key", "_left", "_max_frame_bytes", "close_code", "pongs")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._held = b""
        self._left = 0
        self._key = b""
        self._is_in_message = False
        self.pongs = bytearray()
        self.close_code: int | None = None

    def receive(self, data: bytes, plain: list[bytes]) -> None:
        """Append unmasked payload to `plain` and answers to `pongs`; stops at a Close frame.

        Raises:
            FrameError: the framing is broken; what was good before is in `plain`.
        """
        if self._held:
            data = self._held + data
            self._held = b""
        at = 0
        size = len(data)
        while at < size and self.close_code is None:
            if self._left:
                at = self._payload(data, at, plain)
                continue
            end = at if self._is_in_message else self._whole(data, at, plain)
            end = self._header(data, at) if end == at else end
            if end == at:
                self._held = data[at:]
                return
            at = end

    def _whole(self, data: bytes, at: int, plain: list[bytes]) -> int:
        """Take one short, whole, unfragmented binary frame: nearly all are; `at` if it is another."""
        if len(data) - at < 6 or data[at] != 0x82 or not 0x80 <= data[at + 1] < 0xFE:
            return at
        end = at + 6 + (data[at + 1] & 0x7F)
        if end > len(data) or end - at - 6 > self._max_frame_bytes:
            return at
        plain.append(unmask(data[at + 6 : end], data[at + 2 : at + 6]))
        return end

    def _payload(self, data: bytes, at: int, plain: list[bytes]) -> int:
        chunk = data[at : at + self._left]
        plain.append(unmask(chunk, self._key))
        self._left -= len(chunk)
        turned = len(chunk) & 3
        self._key = self._key[turned:] + self._key[:turned]
        return at + len(chunk)

    def _header(self, data: bytes, at: int) -> int:
        """Take one header, or one whole control frame; answers the position after it, or `at` if bytes are missing."""
        if len(data) - at < 2:
            return at
        first, second = data[at], data[at + 1]
        opcode = first & 0x0F
        if first & 0x70:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "reserved bits are set")
        if not second & 0x80:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a client's frame is not masked")
        if opcode >= 8:
            return self._control(data, at, opcode)
        self._check_data(opcode)
        length, at_key = _length(data, at)
        if length < 0:
            return at
        if length > self._max_frame_bytes:
            raise FrameError(CloseCode.TOO_BIG, "a frame is longer than allowed")
        if len(data) < at_key + 4:
            return at
        self._key = data[at_key : at_key + 4]
        self._left = length
        self._is_in_message = not first & 0x80
        return at_key + 4

    def _check_data(self, opcode: int) -> None:
        if opcode == Opcode.TEXT:  # [MQTT-6.0.0-1]
            raise FrameError(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
        if opcode not in {Opcode.CONTINUATION, Opcode.BINARY}:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a reserved opcode")
        if (opcode == Opcode.CONTINUATION) != self._is_in_message:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a message begins inside another, or continues none")

    def _control(self, data: bytes, at: int, opcode: int) -> int:
        length = data[at + 1] & 0x7F
        if not data[at] & 0x80 or length > MAX_CONTROL_BYTES or opcode not in {Opcode.CLOSE, Opcode.PING, Opcode.PONG}:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a control frame is fragmented, too long, or reserved")
        end = at + 6 + length
        if len(data) < end:
            return at
        payload = unmask(data[at + 6 : end], data[at + 2 : at + 6])
        if opcode == Opcode.CLOSE:
            self.close_code = _close_code(payload)
        elif opcode == Opcode.PING and len(self.pongs) < MAX_PONG_BYTES:
            self.pongs += encode_frame(Opcode.PONG, payload)
        return end


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Payload length and where the masking key begins; -1: bytes are missing."""
    length = data[at + 1] & 0x7F
    if length < 126:
        return length, at + 2
    width = 2 if length == 126 else 8
    if len(data) < at + 2 + width:
        return -1, at
    length = int.from_bytes(data[at + 2 : at + 2 + width], "big")
    if length >> 63 or length < (126 if width == 2 else 1 << 16):  # the shortest form is required
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a length is not in its shortest form")
    return length, at + 2 + width


def _close_code(payload: bytes) -> int:
    if not payload:
        return 1005
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or (code not in KNOWN_CLOSE_CODES and not 3000 <= code < 5000):
        raise FrameError(CloseCode.PROTOCOL_ERROR, "an invalid close code")
    try:
        payload[2:].decode("utf-8")
    except UnicodeDecodeError:
        raise FrameError(CloseCode.INVALID_PAYLOAD, "a close reason is not UTF-8") from None
    return code
