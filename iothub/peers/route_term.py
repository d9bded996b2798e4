# cython: annotation_typing=False
"""Whether this hub may route and acknowledge now: asked with each batch of acknowledgements, so it is compiled.

Knows no look and no link: `iothub/peers/membership.py` does.
"""

from __future__ import annotations

from collections.abc import Callable

_NEVER = float("-inf")


class RouteTerm:
    """As a rule the last look says it. `until`: what it says, of `boottime`; who asks later than that asks `may_longer`."""

    def __init__(self, boottime: Callable[[], float], may_longer: Callable[[], bool]) -> None:
        self.until = _NEVER
        self._boottime = boottime
        self._may_longer = may_longer

    def __call__(self) -> bool:
        return self._boottime() < self.until or self._may_longer()
