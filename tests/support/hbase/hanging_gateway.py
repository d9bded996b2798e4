"""A gateway of HBase that hangs when a test says so: it accepts connections and answers nothing. Between calls it passes on to the real one.

Knows no verb: `hang_at` is what a call looks like at which it begins to hang, before HBase has seen that call.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from iothub.base.units import Endpoint
from tests.support.waiting import PATIENCE_S


class HangingGateway:
    """On a port of its own, two threads for each connection."""

    def __init__(self, real: Endpoint) -> None:
        self._real = real
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Endpoint("127.0.0.1", self._listener.getsockname()[1])
        self.is_hung = False
        self.hang_at: re.Pattern[bytes] | None = None
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def let_go(self) -> None:
        """Answer again; connections from before stay dead."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.hang_at, self.is_hung = None, False

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.let_go()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for each in (self._listener, *self._connections):
            each.close()

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(near)
            if not self.is_hung:
                far = socket.create_connection(self._real)
                self._connections.append(far)
                for ends in ((near, far), (far, near)):
                    self._begin(partial(self._pass_on, *ends))

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        """Until a side is gone, or the gateway hangs: then nothing more goes either way."""
        with suppress(OSError):
            while octets := source.recv(65536):
                self.is_hung |= self.hang_at is not None and self.hang_at.search(octets) is not None
                if self.is_hung:
                    return
                target.sendall(octets)
            target.shutdown(socket.SHUT_WR)
