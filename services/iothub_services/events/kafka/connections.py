"""What kafka-python begins for a client that does not come to be is ended: sockets, selectors and threads.

Knows nothing of clusters and records. The library leaves a socket that was refused, in a cycle of garbage, to the collector, which a hub that
allocates little seldom calls; and when no broker answers a client's constructor, it leaves a thread for good. A hub tries again every second.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka.net import KafkaNetSocket
from kafka.net.compat import KafkaNetClient

_SCHEME = "closing"
PROXY_URL = f"{_SCHEME}://"
"""The option `proxy_url`, by whose scheme the library chooses its sockets. There is no proxy."""


class ClosingSocket(KafkaNetSocket):  # type: ignore[misc]  # the library has no types
    """Connects directly; a socket without a connection is closed."""

    SCHEMES = (_SCHEME,)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


@contextmanager
def ended_unless_made() -> Iterator[Callable[..., KafkaNetClient]]:
    """Give the option `kafka_client` for the constructor of a client; when that fails, what it began is ended."""
    begun: list[KafkaNetClient] = []

    def begin(**options: Any) -> KafkaNetClient:
        begun.append(KafkaNetClient(**options))
        return begun[-1]

    try:
        yield begin
    except BaseException:
        for each in begun:
            each.close()
        raise
