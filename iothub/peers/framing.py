# cython: annotation_typing=False
"""Cuts what a connection of a link reads into frames.

Knows no peer and no body: `iothub/peers/frames.py` says what a frame is. Invariant: whatever the bytes are, no more than one frame and one
chunk are held.
"""

from __future__ import annotations

from struct import Struct

from iothub.peers.frames import MAX_NUMBER, RELIABLE_FROM, TYPES, BadFrameError, FrameType

_HEADER = Struct(">BI")
_NUMBER = Struct(">Q")
_HEADER_BYTES, _NUMBER_BYTES = 5, 8
_RELIABLE_FROM = RELIABLE_FROM  # as a C number


class FrameDecoder:
    """The frames of one stream of bytes. `frame_bytes` may be raised between two frames, once the other side is known.

    Invariant: `frame_type`, `number` (0: it has none) and `body` are of the frame that was cut last.
    """

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.frame_type = FrameType.HELLO
        self.is_reliable = False
        self.number = 0
        self.body = b""
        self._buffer = bytearray()
        self._chunk = b""  # most of what comes is whole frames: they are copied once
        self._at = 0  # where the next frame begins in the buffer, or in the chunk while the buffer is empty

    def add(self, data: bytes) -> None:
        """Take bytes; what was not cut of those before stays in front of them."""
        if self._chunk:
            self._keep()
        if self._buffer:
            self._buffer += data
        else:
            self._chunk = data

    def cut(self) -> bool:
        """Cut the next frame; False: what is left is none yet. Raises BadFrameError; nothing can be read after that."""
        chunk, at = self._chunk, self._at
        buffer = self._buffer
        is_buffered = len(buffer) > 0
        left = (len(buffer) if is_buffered else len(chunk)) - at
        if left < _HEADER_BYTES:
            return self._keep()
        type_number, size = _HEADER.unpack_from(buffer if is_buffered else chunk, at)
        frame_type = TYPES.get(type_number)
        if frame_type is None:
            raise BadFrameError(f"a frame of unknown type {type_number}")
        if size > self.frame_bytes:
            raise BadFrameError(f"a frame of {size} bytes, expected at most {self.frame_bytes}")
        body_at = at + _HEADER_BYTES
        end = body_at + size
        self.is_reliable = type_number >= _RELIABLE_FROM
        if self.is_reliable:
            if size < _NUMBER_BYTES:
                raise BadFrameError(f"a frame of type {frame_type.name} without its number")
            body_at += _NUMBER_BYTES
        if left < _HEADER_BYTES + size:
            return self._keep()
        self.frame_type = frame_type
        self.number = (
            self._number_at(buffer if is_buffered else chunk, body_at - _NUMBER_BYTES) if self.is_reliable else 0
        )
        if is_buffered:
            with memoryview(buffer) as view:  # a slice of a bytearray would be another one first
                self.body = bytes(view[body_at:end])
        else:
            self.body = chunk[body_at:end]
        self._at = end
        return True

    def _number_at(self, source: bytes | bytearray, at: int) -> int:
        number: int = _NUMBER.unpack_from(source, at)[0]
        if number > MAX_NUMBER:
            raise BadFrameError(f"frame {number}, expected a number of at most {MAX_NUMBER}")
        return number

    def _keep(self) -> bool:
        """Keep what is no whole frame yet."""
        if self._buffer:
            del self._buffer[: self._at]
        else:
            self._buffer += self._chunk[self._at :]
        self._chunk = b""
        self._at = 0
        return False
