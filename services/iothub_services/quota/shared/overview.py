"""A read-only overview of the ledger: which hubs hold a lease, and whether all have declared what they have.

Knows no hub and changes nothing: what is read is what `scripts` keep (`keys`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iothub_services.quota.shared.keys import Keys
from iothub_services.redis.calls import Call, Reply, command


@dataclass(frozen=True, slots=True)
class Overview:
    """`hubs`: names of those that hold a lease now; `initialising_ms`: how long nothing is granted; `is_empty`: no hub was ever there."""

    hubs: tuple[str, ...]
    initialising_ms: int
    is_empty: bool

    @property
    def places(self) -> frozenset[str]:
        """The data directories of the hubs; a hub that has just come back may hold two leases."""
        return frozenset(hub.rpartition(".")[0] for hub in self.hubs)


def questions(keys: Keys) -> list[Call]:
    """Return the calls whose answers `read` understands."""
    return [command("TIME"), command("HGETALL", keys.hubs), command("HGET", keys.state, "settled")]


def read(answers: Sequence[Reply]) -> Overview:
    time, leases, settled = answers
    seconds, micros = _list(time)
    now = int(seconds) * 1000 + int(micros) // 1000
    parts = _list(leases)
    until = zip(parts[::2], [int(held.partition(b" ")[0]) for held in parts[1::2]], strict=True)
    living = sorted(name.decode() for name, end in until if end >= now)
    initialising_ms = max(int(settled) - now, 0) if isinstance(settled, bytes) else 0
    return Overview(tuple(living), initialising_ms, is_empty=settled is None)


def _list(answer: Reply) -> list[bytes]:
    return [part for part in answer if isinstance(part, bytes)] if isinstance(answer, list) else []
