"""Blocking clients of the four transports, for tests: bytes in, bytes out, whatever is around them.

Knows no MQTT. WebSocket is spoken by wsproto, TLS by the standard library: neither shares code with the hub's filters.
"""

from __future__ import annotations

import socket
import ssl
from typing import Protocol

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, RejectConnection, Request

PATIENCE_S = 10.0


class ByteClient(Protocol):
    """One client. `receive` answers b"" at the end of the stream, however it ended."""

    sock: socket.socket

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes: ...

    def close(self) -> None: ...


class SocketClient:
    """TCP or TLS."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def receive(self) -> bytes:
        try:
            return self.sock.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            return b""

    def close(self) -> None:
        self.sock.close()


class WebSocketClient:
    """WebSocket on any socket."""

    def __init__(self, sock: socket.socket, path: str = "/mqtt", sub_protocols: tuple[str, ...] = ("mqtt",)) -> None:
        self.sock = sock
        self.pongs: list[bytes] = []
        self.close_code: int | None = None
        self.sub_protocol: str | None = None
        self.status = 101
        self._plain = bytearray()
        self._has_ended = False
        self.wire = WSConnection(ConnectionType.CLIENT)
        sock.sendall(self.wire.send(Request(host="localhost", target=path, subprotocols=list(sub_protocols))))
        self._shake_hands()

    def send(self, data: bytes) -> None:
        self.sock.sendall(self.wire.send(BytesMessage(data=data)))

    def ping(self, payload: bytes) -> None:
        self.sock.sendall(self.wire.send(Ping(payload=payload)))
        while payload not in self.pongs and not self._has_ended:
            self._pump()

    def receive(self) -> bytes:
        while not self._plain and not self._has_ended:
            self._pump()
        data = bytes(self._plain)
        self._plain.clear()
        return data

    def close(self) -> None:
        self.sock.close()

    def _shake_hands(self) -> None:
        while self.sub_protocol is None and not self._has_ended:
            self._pump()
        if self.sub_protocol is None and self.status == 101:
            raise ConnectionResetError("the server closed during the WebSocket handshake")

    def _pump(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            data = b""
        if not data:
            self._has_ended = True
            return
        self.wire.receive_data(data)
        for event in self.wire.events():
            if isinstance(event, AcceptConnection):
                self.sub_protocol = event.subprotocol or ""
            elif isinstance(event, RejectConnection):
                self.status = event.status_code
                self._has_ended = True
            elif isinstance(event, BytesMessage):
                self._plain += event.data
            elif isinstance(event, Pong):
                self.pongs.append(bytes(event.payload))
            elif isinstance(event, CloseConnection):
                self.close_code = event.code


def connect(
    name: str,
    address: tuple[str, int],
    tls: ssl.SSLContext | None = None,
    *,
    preamble: bytes = b"",
    buffer_bytes: int = 0,
) -> ByteClient:
    """Connect over one of `tcp tls ws wss`; `preamble` goes in front of everything (a PROXY header)."""
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        sock.settimeout(PATIENCE_S)
        if buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(preamble)
        if name in {"tls", "wss"}:
            context = tls or ssl.create_default_context()
            sock = context.wrap_socket(sock, server_hostname="localhost")
        return WebSocketClient(sock) if name in {"ws", "wss"} else SocketClient(sock)
    except BaseException:
        sock.close()
        raise
