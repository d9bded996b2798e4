"""Many bare sockets at once: who was closed, when, and with what.

Knows no MQTT; a test brings the bytes.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from dataclasses import dataclass

from tests.support.waiting import PATIENCE_S


@dataclass
class Bare:
    """One socket: what came back until the hub closed it. `closed_s`: when, after the crowd began to wait."""

    sock: socket.socket
    received: bytes = b""
    closed_s: float | None = None


class Crowd:
    """Sockets that were connected and have sent something. Use as a context manager."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.members: list[Bare] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.members:
            one.sock.close()

    def add(self, data: bytes = b"") -> Bare:
        """Connect and send; a hub that closes early is no error here."""
        one = Bare(socket.socket())
        one.sock.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionResetError):  # closed before `connect` has returned
            one.sock.connect(("127.0.0.1", self.port))
        one.sock.setblocking(False)
        self.members.append(one)
        self.send(one, data)
        return one

    def send(self, one: Bare, data: bytes) -> None:
        """Send as much as the socket takes."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            one.sock.send(data)

    def wait_closed(self, timeout_s: float) -> list[float]:
        """Read until everybody was closed, at most this long; returns when each was, in seconds."""
        begun = time.monotonic()
        poll = select.poll()
        waiting = {one.sock.fileno(): one for one in self.members if one.closed_s is None}
        for number in waiting:
            poll.register(number, select.POLLIN)
        while waiting and time.monotonic() - begun < timeout_s:
            for number, _ in poll.poll(100):
                if self._read(waiting[number]):
                    waiting.pop(number).closed_s = time.monotonic() - begun
                    poll.unregister(number)
        return [one.closed_s for one in self.members if one.closed_s is not None]

    def _read(self, one: Bare) -> bool:
        try:
            data = one.sock.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            return True
        one.received += data
        return not data
