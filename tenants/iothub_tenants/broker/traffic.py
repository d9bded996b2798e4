"""What a tenant's clients have sent and received since the hub started, over all brokers that the tenant has had.

Knows no metric and no topic. Metering is elsewhere: it closes periods, and reads the counters of every broker itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from iothub.engine.counters import Counters

ByQos = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Totals that only rise. `dropped`: by the label of the reason; a reason without drops is not there."""

    messages_received: ByQos = (0, 0, 0)
    messages_delivered: ByQos = (0, 0, 0)
    bytes_received: int = 0
    bytes_sent: int = 0
    dropped: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def plus(self, counters: Counters) -> Traffic:
        """Return the sum with what the message plane has counted for one broker."""
        drops = {label: self.dropped.get(label, 0) + count for label, count in counters.drops().items()}
        return Traffic(
            _sum(self.messages_received, counters.messages_received()),
            _sum(self.messages_delivered, counters.messages_delivered()),
            self.bytes_received + counters.bytes_received,
            self.bytes_sent + counters.bytes_sent,
            {label: count for label, count in drops.items() if count},
        )


NO_TRAFFIC = Traffic()


class PastTraffic:
    """The traffic of tenants whose broker was dropped, by tenant id; a few hundred bytes each, until the tenant is deleted."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[str, Traffic]] = {}

    def __iter__(self) -> Iterator[tuple[int, str, Traffic]]:
        """Tenant id, name and traffic; a tenant that has a broker again may still be among them."""
        return ((tenant_id, name, traffic) for tenant_id, (name, traffic) in self._kept.items())

    def keep(self, tenant_id: int, name: str, traffic: Traffic) -> None:
        self._kept[tenant_id] = name, traffic

    def of(self, tenant_id: int) -> Traffic:
        """Return the totals with which the tenant's next broker begins."""
        return self._kept.get(tenant_id, ("", NO_TRAFFIC))[1]

    def forget(self, tenant_id: int) -> None:
        self._kept.pop(tenant_id, None)


def _sum(first: ByQos, second: ByQos) -> ByQos:
    return first[0] + second[0], first[1] + second[1], first[2] + second[2]
