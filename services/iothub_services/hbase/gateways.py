"""The gateways of one client: which of them is in trouble, and which comes next.

Knows no connection: lanes tell of failures, scouts of recoveries. Runs on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from iothub.base import log as logging
from iothub.base.units import Endpoint

log = logging.get(__name__)


class Gateways:
    """Invariant: a trouble is told once, to the log and to `on_trouble`, and so is its end, to the log."""

    def __init__(self, endpoints: Sequence[Endpoint], on_trouble: Callable[[Endpoint], None]) -> None:
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
        if gateway in self._troubles:
            return
        self._troubles[gateway] = reason
        log.warning("a gateway of HBase does not answer", gateway=str(gateway), cause=reason, gateways=len(self))
        self._on_trouble(gateway)

    def forget(self) -> None:
        """Nobody looks any more: nothing is known of any."""
        self._troubles.clear()

    def answers(self, gateway: Endpoint) -> None:
        """It has answered a question for which it needed HBase."""
        if self._troubles.pop(gateway, None) is not None:
            log.info("a gateway of HBase answers again", gateway=str(gateway))
