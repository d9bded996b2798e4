"""The gateways of one client: which of them is in trouble, and which comes next.

Knows no connection: connections report failures, probers recoveries. Runs on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from iothub.base.units import Endpoint


class Gateways:
    """Invariant: `on_trouble` hears of a trouble once, until `answers` has ended it."""

    def __init__(self, endpoints: Sequence[Endpoint], on_trouble: Callable[[Endpoint, str], None]) -> None:
        self._endpoints = tuple(endpoints)
        self._on_trouble = on_trouble
        self._troubles: dict[Endpoint, str] = {}

    def __len__(self) -> int:
        return len(self._endpoints)

    def __getitem__(self, at: int) -> Endpoint:
        return self._endpoints[at % len(self._endpoints)]

    @property
    def troubles(self) -> Mapping[Endpoint, str]:
        """What the gateways did that do not answer."""
        return self._troubles

    @property
    def are_up(self) -> dict[str, int]:
        """1 for each gateway that answers as far as is known, 0 for each other one, by address."""
        return {str(each): int(each not in self._troubles) for each in self._endpoints}

    def is_well(self, at: int) -> bool:
        return self[at] not in self._troubles

    def after(self, at: int) -> int:
        """Return the place of the next gateway that is in no trouble; of the next one when all are."""
        count = len(self._endpoints)
        others = [(at + step) % count for step in range(1, count)]
        return next((other for other in others if self.is_well(other)), (at + 1) % count)

    def failed(self, gateway: Endpoint, reason: str) -> None:
        """It cannot be reached, or does not say that it is there."""
        if gateway not in self._troubles:
            self._troubles[gateway] = reason
            self._on_trouble(gateway, reason)

    def answers(self, gateway: Endpoint) -> None:
        """It has answered a question for which it needed HBase."""
        self._troubles.pop(gateway, None)

    def forget(self) -> None:
        """Nobody looks any more: nothing is known of any."""
        self._troubles.clear()
