"""The server of the store process: accepts the connections of workers, and hands each request to its port.

Knows no store. A thread for each connection, as one connection has one request under way; that is the bound of what waits here.

Invariant: of one client, one connection is read. When a client connects anew, nothing more is read from its earlier connection: a request
that was still unread there must not be carried out after the client was answered that it was not.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from iothub.base import log as logging
from iothub.base.errors import BackendError, ConflictError, UnavailableError
from iothub_services.store_process.frames import (
    FRAME_BYTES,
    HELLO_BYTES,
    VERSION,
    FrameError,
    framed,
    pack,
    pack_error,
    unpack,
)
from iothub_services.store_process.ports import Answering
from iothub_services.store_process.sockets import listen, receive_frame
from iothub_services.store_process.verbs import HELLO, REQUEST

log = logging.get(__name__)

CLOSE_S = 10.0
_INCARNATION_BYTES = 16


class StoreServer:
    """Listens from the beginning, serves when it is started. `notices`: what a worker must tell an operator, as (word, text) of alarms."""

    def __init__(
        self, path: Path, ports: Mapping[str, Answering], notices: list[tuple[str, str]] | None = None
    ) -> None:
        """Raises UnavailableError: the socket cannot be made."""
        self._path = path
        self._ports = ports
        self.notices = notices if notices is not None else []
        self.incarnation = secrets.token_bytes(_INCARNATION_BYTES)
        try:
            self._listening = listen(path)
        except OSError as error:
            raise UnavailableError(f"{path}: cannot listen: {error.strerror}") from None
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._clients: dict[tuple[str, bytes], _Connection] = {}
        self._is_closing = False
        self._thread = threading.Thread(target=self._accept, name="iothub-store-accept", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Take nothing more, answer what was taken, end the ports. False: a port still writes, and its store must be left open."""
        until = monotonic() + timeout_s
        with self._lock:
            self._is_closing = True
            connections = list(self._connections)
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        for connection in connections:
            connection.end()
        is_idle = True
        for port in self._ports.values():
            is_idle &= port.close()
        for connection in connections:
            connection.join(max(until - monotonic(), 0.0))
        return is_idle

    @property
    def connections(self) -> int:
        return len(self._connections)

    # --- for the connections

    def port(self, name: str) -> Answering:
        """Raises ConflictError."""
        port = self._ports.get(name)
        if port is None:
            raise ConflictError(f"the store process has no {name!r}: all processes must run with the same settings")
        return port

    def only_one(self, connection: _Connection, name: str, client: bytes) -> None:
        """Read no earlier connection of this client from now on."""
        if not client:
            return  # it only reads
        with self._lock:
            before = self._clients.get((name, client))
            self._clients[name, client] = connection
        if before is not None:
            before.end()

    def ended(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
            for key in [key for key, each in self._clients.items() if each is connection]:
                del self._clients[key]

    # --- the thread that accepts

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError as error:
                if self._is_closing:
                    return
                log.error("connection not accepted", cause=error.strerror)
                threading.Event().wait(1.0)  # no descriptor is free: whoever connects waits
                continue
            connection = _Connection(self, accepted)
            with self._lock:
                if self._is_closing:
                    accepted.close()
                    return
                self._connections.add(connection)
            connection.start()


class _Connection:
    """One connection and its thread."""

    def __init__(self, server: StoreServer, connection: socket.socket) -> None:
        self._server = server
        self._socket = connection
        self._taking = threading.Lock()  # held while a request goes to its port
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="iothub-store-connection", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Take no further request; one that is taken is answered."""
        with self._taking:
            self._is_ended = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._serve()
        except FrameError as error:
            log.warning("connection closed: it sent what it must not", cause=str(error))
        except OSError:
            pass  # the worker has gone
        except Exception as error:  # edge: a defect must not end the server
            log.error("defect in a connection of the store process", exc_info=error)
        finally:
            self._server.ended(self)
            self._socket.close()

    def _serve(self) -> None:
        hello: tuple[Any, ...] = HELLO(unpack(receive_frame(self._socket, HELLO_BYTES)))
        version, name, client = hello
        try:
            port = self._welcomed(version, name)
        except ConflictError as error:
            self._send(pack((0, pack((False, pack_error(error))), None)))
            return
        self._server.only_one(self, name, client)
        session = port.begin()
        welcome = (VERSION, self._server.incarnation, self._server.notices)
        self._send(pack((0, pack((True, welcome)), None)))
        while True:
            request: tuple[Any, ...] = REQUEST(unpack(receive_frame(self._socket)))
            with self._taking:
                if self._is_ended:
                    return
                wait = port.take(session, client, *request)
            answer = wait()
            if len(answer) > FRAME_BYTES:
                answer = _too_large(request[0], len(answer))
            self._send(answer)

    def _welcomed(self, version: int, name: str) -> Answering:
        """Raises ConflictError."""
        if version != VERSION:
            raise ConflictError(f"the store process speaks version {VERSION}, this process {version}: restart the hub")
        return self._server.port(name)

    def _send(self, body: bytes) -> None:
        self._socket.sendall(framed(body))


def _too_large(asked: int, size: int) -> bytes:
    """Answer instead of an answer that nobody would accept."""
    error = BackendError(f"the answer has {size} bytes, allowed are {FRAME_BYTES}", retryable=False, is_written=True)
    return pack((asked, pack((False, pack_error(error))), None))
