"""Raw clients over the four transports: TCP, TLS, WebSocket, WebSocket over TLS."""

from __future__ import annotations

import base64
import os
import socket
import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, RejectConnection, Request, TextMessage

from tests.support.clients.raw import RawClient, Stream
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S

TRANSPORTS = ("tcp", "tls", "ws", "wss")


class WebSocketStream:
    """A blocking socket look-alike over a WebSocket, made with wsproto (not with the hub's own framing)."""

    def __init__(self, sock: socket.socket, path: str = "/mqtt", protocol: str = "mqtt") -> None:
        self.sock = sock
        self.ws = WSConnection(ConnectionType.CLIENT)
        self.readable = b""
        self.is_closed = False
        self.accepted: AcceptConnection | None = None
        request = Request(host="127.0.0.1", target=path, subprotocols=[protocol])
        self.sock.sendall(self.ws.send(request))
        accepted = self._answer()
        if accepted is None:
            raise ConnectionError("the WebSocket was refused")
        if accepted.subprotocol != protocol:
            raise ConnectionError(f"sub-protocol {accepted.subprotocol!r}")  # [MQTT-6.0.0-4]

    def _answer(self) -> AcceptConnection | None:
        while self.accepted is None and not self.is_closed:
            self._receive()
        return self.accepted

    def _receive(self) -> None:
        data = self.sock.recv(65536)
        self.ws.receive_data(data or None)
        for event in self.ws.events():
            if isinstance(event, AcceptConnection):
                self.accepted = event
            elif isinstance(event, BytesMessage):
                self.readable += bytes(event.data)
            elif isinstance(event, Ping):
                self.sock.sendall(self.ws.send(event.response()))
            elif isinstance(event, CloseConnection | RejectConnection):
                self.is_closed = True
        if not data:
            self.is_closed = True

    def send_text(self, text: str) -> None:
        self.sock.sendall(self.ws.send(TextMessage(text)))

    def sendall(self, data: bytes) -> None:
        self.sock.sendall(self.ws.send(BytesMessage(data)))

    def recv(self, size: int) -> bytes:
        while not self.readable and not self.is_closed:
            self._receive()
        taken, self.readable = self.readable[:size], self.readable[size:]
        return taken

    def pending(self) -> int:
        return len(self.readable) or (self.sock.pending() if isinstance(self.sock, ssl.SSLSocket) else 0)

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()


@lru_cache
def _trust(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


@dataclass
class Listener:
    """One way into a hub: makes raw clients over one transport."""

    hub: Hub
    transport: str

    def stream(self, **web: str) -> Stream:
        """A connected stream; `web`: path and sub-protocol other than the usual ones."""
        sock = socket.create_connection(("127.0.0.1", self.hub.ports[self.transport]), timeout=PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.transport in ("tls", "wss"):
            context = _trust(self.hub.data_dir / "cert.pem")
            sock = context.wrap_socket(sock, server_hostname="localhost")
        if self.transport in ("ws", "wss"):
            try:
                return WebSocketStream(sock, **web)
            except ConnectionError:
                sock.close()
                raise
        return sock

    def client(self, version: int = 4) -> RawClient:
        return RawClient(0, version, stream=self.stream())


def unique(prefix: str = "c") -> str:
    """A name that no other test has."""
    return f"{prefix}-{base64.b32encode(os.urandom(5)).decode().lower()}"
