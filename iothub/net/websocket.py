"""WebSocket as a byte filter: the HTTP upgrade, then frames in and one binary frame per flush out.

Knows no sockets and no MQTT; strictness is in `websocket_upgrade` and `websocket_frames`.
"""

from __future__ import annotations

from iothub.base.reasons import Reason
from iothub.net.filters import FilterClosed
from iothub.net.websocket_frames import CloseCode, FrameError, FrameReader, Opcode, encode_close, encode_frame
from iothub.net.websocket_upgrade import Upgrade


class WebSocketFilter:
    """WebSocket of one client, server side."""

    __slots__ = ("_frames", "_has_closed", "_upgrade", "is_open", "replies")

    def __init__(self, path: str, max_frame_bytes: int) -> None:
        self.is_open = False
        self.replies = bytearray()
        self._upgrade: Upgrade | None = Upgrade(path)
        self._frames = FrameReader(max_frame_bytes)
        self._has_closed = False

    def receive(self, data: bytes) -> bytes:
        upgrade = self._upgrade
        if upgrade is not None:
            try:
                if not upgrade.receive(data):
                    return b""
            finally:
                self.replies += upgrade.replies
            data = upgrade.rest
            self._upgrade = None
            self.is_open = True
        return self._read(data)

    def send(self, data: bytes) -> bytes:
        return b"" if self._has_closed else encode_frame(Opcode.BINARY, data)  # [MQTT-6.0.0-1]

    def final_bytes(self) -> bytes:
        if not self.is_open or self._has_closed:
            return b""
        self._has_closed = True
        return encode_close(CloseCode.NORMAL)

    def _read(self, data: bytes) -> bytes:
        frames = self._frames
        plain: list[bytes] = []
        try:
            frames.receive(data, plain)
        except FrameError as error:
            self._close(encode_close(error.code))
            raise FilterClosed(Reason.PROTOCOL_ERROR, f"WebSocket: {error}", b"".join(plain)) from None
        if frames.pongs:
            self.replies += frames.pongs
            frames.pongs.clear()
        if frames.close_code is not None:
            code = frames.close_code
            self._close(encode_frame(Opcode.CLOSE, b"") if code == 1005 else encode_close(code))
            raise FilterClosed(Reason.NETWORK, "WebSocket closed by the peer", b"".join(plain))
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def _close(self, frame: bytes) -> None:
        self.replies += frame
        self._has_closed = True
