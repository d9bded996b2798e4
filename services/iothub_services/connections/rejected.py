"""The last refused CONNECTs of every tenant, in memory: what `iothub rejected` shows.

Knows no packet, no account and no log. Text is as the client sent it: whoever prints it escapes it. A password is never in it.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from typing import NamedTuple

PER_TENANT = 1000
LIMIT_BYTES = 32 << 20
NO_TENANT = 0  # in place of a tenant id: a name that no tenant has, or no name at all
_RECORD_BYTES = 600  # of a record without the characters of its texts
_MOST_CHARACTERS = 512  # of one text


class Client(NamedTuple):
    """Who a connection claims to be; empty: not known. `tenant_id`: `NO_TENANT` if no known tenant has the name `tenant`."""

    tenant_id: int
    tenant: str
    device: str
    client_id: str
    address: str
    listener: str
    version: int


class Rejected(NamedTuple):
    """One refused CONNECT. `reason`: what the client was answered; `rule`: what decided."""

    at_ms: int
    client: Client
    reason: str
    rule: str


class RejectedConnects:
    """The last `PER_TENANT` of each tenant. On the reactor thread.

    Invariants: at most `LIMIT_BYTES` are held, by estimate; above it the tenant that was not refused for the longest time loses its oldest ones.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES, per_tenant: int = PER_TENANT) -> None:
        self._limit_bytes = limit_bytes
        self._per_tenant = per_tenant
        self._by_tenant: OrderedDict[int, deque[Rejected]] = OrderedDict()  # least recently refused first
        self.held_bytes = 0

    def add(self, rejected: Rejected) -> None:
        """O(1)."""
        rejected = _bounded(rejected)
        tenant_id = rejected.client.tenant_id
        records = self._by_tenant.setdefault(tenant_id, deque())
        self._by_tenant.move_to_end(tenant_id)
        records.append(rejected)
        self.held_bytes += _size(rejected)
        if len(records) > self._per_tenant:
            self.held_bytes -= _size(records.popleft())
        while self.held_bytes > self._limit_bytes:
            self._drop_oldest()

    def of_tenant(self, tenant_id: int, name: str) -> list[Rejected]:
        """Return those of a tenant, oldest first; also those from before the hub had read the tenant's record."""
        unread = [each for each in self._by_tenant.get(NO_TENANT, ()) if each.client.tenant == name]
        merged = heapq.merge(self._by_tenant.get(tenant_id, ()), unread, key=lambda each: each.at_ms)
        return list(merged)[-self._per_tenant :]

    def without_tenant(self) -> list[Rejected]:
        """Return those that named no known tenant, oldest first."""
        return list(self._by_tenant.get(NO_TENANT, ()))

    def forget_tenant(self, tenant_id: int) -> None:
        """The tenant was deleted."""
        for rejected in self._by_tenant.pop(tenant_id, ()):
            self.held_bytes -= _size(rejected)

    def _drop_oldest(self) -> None:
        tenant_id, records = next(iter(self._by_tenant.items()))
        self.held_bytes -= _size(records.popleft())
        if not records:
            del self._by_tenant[tenant_id]


def _bounded(rejected: Rejected) -> Rejected:
    client = rejected.client
    if len(client.client_id) > _MOST_CHARACTERS:
        client = client._replace(client_id=client.client_id[:_MOST_CHARACTERS])
    return rejected._replace(client=client, rule=rejected.rule[:_MOST_CHARACTERS])


def _size(rejected: Rejected) -> int:
    client = rejected.client
    texts = (client.tenant, client.device, client.client_id, client.address, rejected.rule)
    return _RECORD_BYTES + 4 * sum(map(len, texts))
