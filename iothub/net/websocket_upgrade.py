"""The HTTP request that opens a WebSocket: parsed by h11, held against RFC 6455 section 4.2 and MQTT's section 6, answered.

Knows no frames and no sockets.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

import h11

from iothub.base.reasons import Reason
from iothub.net.filters import FilterClosed

MAX_HEADER_BYTES = 8192
KEY_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
SUB_PROTOCOLS = (b"mqtt", b"mqttv3.1")  # [MQTT-6.0.0-3]; the second is what clients of MQTT 3.1 ask for

STATUS = {
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    426: b"Upgrade Required",
    431: b"Request Header Fields Too Large",
}


class Upgrade:
    """One upgrade request as its bytes arrive. `replies` gets the answer, good or bad."""

    __slots__ = ("_http", "_path", "_size", "replies", "rest")

    def __init__(self, path: str) -> None:
        self._path = path.encode("utf-8")
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._size = 0
        self.replies = b""
        self.rest = b""

    def receive(self, data: bytes) -> bool:
        """Take bytes; True: upgraded, `rest` is what follows the request.

        Raises:
            FilterClosed: refused; `replies` says why in HTTP.
        """
        self._size += len(data)
        self._http.receive_data(data)
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise self._refuse(error.error_status_hint if error.error_status_hint in STATUS else 400) from None
        if not isinstance(event, h11.Request):
            if self._size > MAX_HEADER_BYTES:
                raise self._refuse(431)
            return False
        rest = bytes(self._http.trailing_data[0])
        if self._size - len(rest) > MAX_HEADER_BYTES:
            raise self._refuse(431)
        self._accept(event)
        self.rest = rest
        return True

    def _accept(self, request: h11.Request) -> None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in request.headers:
            headers.setdefault(bytes(name), []).append(bytes(value))
        if request.target.split(b"?", 1)[0] != self._path:
            raise self._refuse(404)
        if request.method != b"GET":
            raise self._refuse(405)
        if b"websocket" not in _tokens(headers, b"upgrade") or b"upgrade" not in _tokens(headers, b"connection"):
            raise self._refuse(426)
        if headers.get(b"sec-websocket-version") != [b"13"]:
            raise self._refuse(426)
        key = headers.get(b"sec-websocket-key", [])
        if request.http_version != b"1.1" or len(key) != 1 or not _is_key(key[0]):
            raise self._refuse(400)
        offered = [word.strip() for line in headers.get(b"sec-websocket-protocol", ()) for word in line.split(b",")]
        protocol = next((name for name in SUB_PROTOCOLS if name in offered), None)
        if protocol is None:  # the client has to offer MQTT's sub-protocol [MQTT-6.0.0-3]
            raise self._refuse(400)
        digest = base64.b64encode(hashlib.sha1(key[0] + KEY_SUFFIX, usedforsecurity=False).digest())
        self.replies = (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + digest + b"\r\nSec-WebSocket-Protocol: " + protocol + b"\r\n\r\n"
        )  # [MQTT-6.0.0-4]

    def _refuse(self, status: int) -> FilterClosed:
        reason = STATUS[status]
        extra = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" if status == 426 else b""
        connection = b"Upgrade, close" if status == 426 else b"close"
        body = b"%d %s\n" % (status, reason)
        self.replies = (
            b"HTTP/1.1 %d %s\r\n%sConnection: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
            % (status, reason, extra, connection, len(body), body)
        )
        return FilterClosed(Reason.PROTOCOL_ERROR, f"WebSocket upgrade refused with {status}")


def _tokens(headers: dict[bytes, list[bytes]], name: bytes) -> set[bytes]:
    return {word.strip().lower() for line in headers.get(name, ()) for word in line.split(b",")}


def _is_key(value: bytes) -> bool:
    try:
        return len(base64.b64decode(value, validate=True)) == 16
    except binascii.Error:
        return False
