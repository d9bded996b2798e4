"""A compiled poller with one listener on a Unix socket, whose turns are made by a test."""

from __future__ import annotations

import socket

from iothub.engine.poller import Poller
from iothub.net.acceptor import Acceptor
from iothub.net.filter_factory import FilterFactory
from iothub.net.gate import Gate
from iothub.net.listener_info import listener_info
from iothub.testing.clock import ManualClock
from iothub.testing.echo_plane import EchoConnection, EchoPlane

FAR = 1e12  # a deadline that does not come


class Bench:
    """A poller whose turns are made by the test."""

    def __init__(self, path: str) -> None:
        self.plane = EchoPlane()
        self.scheduled = 0
        self.poller = Poller(self.plane, self.schedule)
        info = listener_info("tcp", max_connections=1000)
        clock = ManualClock()
        self.gate = Gate(info, clock)
        self._path = path
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(100)
        listening.setblocking(False)
        self.poller.listen(listening.detach(), Acceptor(self.plane, self.gate, clock, FilterFactory(info)))
        self.clients: list[socket.socket] = []

    def schedule(self) -> None:
        self.scheduled += 1

    def client(self) -> tuple[socket.socket, EchoConnection]:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(300)
        client.connect(self._path)
        self.clients.append(client)
        self.turn()
        return client, self.plane.connections[-1]

    def turn(self, deadline: float = FAR) -> None:
        self.poller.turn(deadline)

    def close(self) -> None:
        self.poller.close()
        for client in self.clients:
            client.close()
