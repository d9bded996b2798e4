"""Which filters a listener puts around its clients, outermost first: PROXY protocol, TLS, WebSocket.

Knows the filters' constructors and no bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.net.filters import Filter
from iothub.net.listener_info import ListenerInfo


class FilterFactory:
    """Makes the filters of each client of one listener; holds what they share."""

    def __init__(self, listener: ListenerInfo) -> None:
        self._listener = listener

    def has_filters(self) -> bool:
        return False

    def make(self) -> list[Filter]:
        return []

    def reload(self) -> Callable[[], None]:
        return lambda: None
