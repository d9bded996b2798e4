# cython: annotation_typing=False
"""Sums up how long a tenant's connections have lasted: what metering calls connection time.

Knows no connection: it is called when a unit of `connections` is reserved and when it is released.
"""

from __future__ import annotations

from iothub.base.clock import Clock


class ConnectionTime:
    """A total that only rises. Invariant: `_held_s` is exact up to `_since`; from then on `_connections` units are held."""

    __slots__ = ("_clock", "_connections", "_held_s", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._connections = 0
        self._held_s = 0.0
        self._since = clock.monotonic()

    def on_reserved(self) -> None:
        self._advance(1)

    def on_released(self) -> None:
        self._advance(-1)

    def held_ms(self) -> int:
        """Return the sum up to now, in milliseconds."""
        self._advance(0)
        return int(self._held_s * 1000)

    def _advance(self, change: int) -> None:
        now = self._clock.monotonic()
        self._held_s += self._connections * (now - self._since)
        self._since = now
        self._connections += change
