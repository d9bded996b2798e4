"""How often things happened in a period, by tenant, device and word: for events that are written once a minute.

Knows no event and no clock: the writer takes all counts, which restart at 0.

Theory: a storm must not fill memory or log. Words come from the program and tenants are known ones, but there may be very many devices; so only a
bounded number have a count of their own, and the others are added up under no name. Nothing is ever left out of the sums.
"""

from __future__ import annotations

from typing import NamedTuple

DEVICES_PER_TENANT = 64
DEVICES = 8_192


class Count(NamedTuple):
    """`device` is empty: several devices, or none."""

    tenant_id: int
    device: str
    word: str
    times: int


class Tally:
    """Counts of one kind. Invariant: `_devices` is how many keys with a device there are."""

    def __init__(self, devices_per_tenant: int = DEVICES_PER_TENANT, devices: int = DEVICES) -> None:
        self._most_per_tenant = devices_per_tenant
        self._most = devices
        self._devices = 0
        self._counts: dict[int, dict[tuple[str, str], int]] = {}

    def add(self, tenant_id: int, device: str, word: str, count: int = 1) -> None:
        counts = self._counts.get(tenant_id)
        if counts is None:
            counts = self._counts[tenant_id] = {}
        key = (device, word)
        if device and key not in counts:
            if self._devices >= self._most or len(counts) >= self._most_per_tenant:
                key = ("", word)
            else:
                self._devices += 1
        counts[key] = counts.get(key, 0) + count

    def take_counts(self) -> list[Count]:
        """Return everything that was counted since the last call, and forget it."""
        taken, self._counts, self._devices = self._counts, {}, 0
        return [
            Count(tenant_id, device, word, count)
            for tenant_id, counts in taken.items()
            for (device, word), count in counts.items()
        ]
