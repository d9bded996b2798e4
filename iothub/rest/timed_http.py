"""HTTP/1.1 as uvicorn speaks it, with a limit of time for the head of a request: whoever sends none holds one of a bounded number of connections.

Knows no path. Bodies have their own limit (`iothub.rest.edge`), idle connections uvicorn's.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0  # from the first byte, or from the beginning of the connection, to the empty line


class TimedH11Protocol(H11Protocol):
    """Invariant: while the head of a request is awaited, one timer runs; what comes in pieces does not begin it anew."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        else:
            self._has_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_head()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _has_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
