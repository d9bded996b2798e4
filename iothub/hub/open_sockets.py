"""What of a hub is open to others just now: HTTP first, the listeners and the local socket when the hub is ready.

Knows no client. Start opens, stop closes.
"""

from __future__ import annotations

from typing import Any

from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.admin_socket import open_socket
from iothub.hub.parts import Sockets
from iothub.net import http
from iothub.net.admin_server import AdminSocket
from iothub.records.admin_commands import Answering


class OpenSockets:
    """On the reactor thread."""

    def __init__(self, sockets: Sockets, settings: Config, reactor: Any, data_dir: DataDir, answer: Answering) -> None:
        """`answer`: to what administrators ask."""
        self._answer = answer
        self._sockets = sockets
        self._settings = settings.http
        self._is_port_shared = settings.node.workers > 1
        self._reactor = reactor
        self._data_dir = data_dir
        self._http: Any = None
        self._admin: AdminSocket | None = None

    def open_http(self) -> None:
        """Health is asked from here on."""
        factory, settings = self._sockets.http, self._settings
        if factory is not None and settings.port is not None:
            self._http = http.listen(
                self._reactor, factory, settings.bind, settings.port, is_port_shared=self._is_port_shared
            )

    def try_ports(self) -> None:
        """Raise UnavailableError if a port is in use: nobody waits for servers in vain."""
        self._sockets.listeners.try_ports()

    def open(self, *, is_draining: bool) -> None:
        """Let clients in, unless the hub drains, and administrators ask. Raises UnavailableError."""
        self._admin = open_socket(self._answer, self._reactor, self._data_dir)  # first: who got in can be asked about
        self._sockets.listeners.start()
        if is_draining:  # its ports are known, and in the same turn nobody has come
            self._sockets.listeners.stop_accepting()

    def listening(self) -> dict[str, str]:
        """Return the address of each listener for clients."""
        return {name: f"{host}:{port}" for name, (host, port) in self._sockets.listeners.addresses().items()}

    def http_address(self) -> dict[str, str]:
        """Return that of HTTP; empty while it does not listen."""
        if self._http is None:
            return {}
        host = self._http.getHost()
        return {"http": f"{host.host}:{host.port}"}

    def stop_accepting(self) -> None:
        """Nobody new comes in; who is in stays."""
        self._sockets.listeners.stop_accepting()
        self._close_admin()

    def close_listeners(self) -> None:
        self._sockets.listeners.close()
        self._close_admin()

    async def close_http(self) -> None:
        """Return when it does not listen any more: health is asked as long as possible."""
        if self._http is not None:
            await self._http.stopListening()

    def _close_admin(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
