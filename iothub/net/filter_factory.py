"""Which filters a listener puts around its clients, outermost first: PROXY protocol, TLS, WebSocket.

Knows the filters' constructors and no bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.net.filters import ClientFacts, Filter
from iothub.net.listener_info import ListenerInfo
from iothub.net.proxy_protocol import ProxyFilter
from iothub.net.tls import TlsFiles, TlsFilter
from iothub.net.websocket import WebSocketFilter


class FilterFactory:
    """Makes the filters of each client of one listener; holds what they share.

    Raises:
        ConfigError: a certificate file is missing or does not fit.
    """

    def __init__(self, listener: ListenerInfo) -> None:
        self._listener = listener
        self._files = TlsFiles(listener) if listener.is_tls else None

    def has_filters(self) -> bool:
        listener = self._listener
        return bool(listener.proxy_trusted) or listener.is_tls or listener.is_websocket

    def make(self, client: ClientFacts) -> list[Filter]:
        listener = self._listener
        filters: list[Filter] = []
        if listener.proxy_trusted:
            filters.append(ProxyFilter(client))
        if self._files is not None:
            filters.append(TlsFilter(self._files.context, client))
        if listener.is_websocket:
            filters.append(WebSocketFilter(listener.path, listener.max_frame_bytes))
        return filters

    def prepare(self, listener: ListenerInfo) -> Callable[[], None]:
        """Read the certificates of the listener as it is to be; the answer puts that to use, so that several change together or not at all.

        Raises:
            ConfigError: a file is missing or does not fit; nothing has changed.
        """
        files = TlsFiles(listener) if listener.is_tls else None

        def use() -> None:
            self._listener = listener
            self._files = files

        return use
