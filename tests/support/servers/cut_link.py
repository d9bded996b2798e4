"""A link to a server that can be cut between a call and its answer: what was asked has been done, and nobody hears of it.

Knows no protocol: what the server sends next is thrown away with the connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class CutLink:
    """Listens on a port of its own and hands everything on. `cut` ends the connections that get an answer next."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0  # that have happened
        self._planned = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def __enter__(self) -> CutLink:
        threading.Thread(target=self._accept, name="link", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._open):
            _end(each)

    def cut(self, count: int = 1) -> None:
        """Throw away the next `count` answers, each with its connection."""
        with self._lock:
            self._planned += count

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._open |= {client, server}
            threading.Thread(target=self._hand_on, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(server, client, True), daemon=True).start()

    def _hand_on(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while octets := source.recv(1 << 16):
                if is_answer and self._is_cut():
                    break
                sink.sendall(octets)
        _end(source)
        _end(sink)

    def _is_cut(self) -> bool:
        with self._lock:
            if not self._planned:
                return False
            self._planned -= 1
            self.cuts += 1
            return True


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
