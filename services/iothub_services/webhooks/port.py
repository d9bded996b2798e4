"""What a webhook is to whoever delivers its events, and what is said of each attempt.

Knows no account, no store and no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from iothub.base.units import Network

PLATFORM = 0  # in place of a tenant id: the webhook gets the events of all tenants, and those of the platform
SECRET_BYTES = 32


class Result(StrEnum):
    """What came of an event. The value is the word in the delivery log, the metric, the log and the alarm."""

    DELIVERED = "delivered"
    FAILED = "failed"  # it is tried again
    QUEUE_FULL = "queue_full"
    GIVEN_UP = "given_up"  # it was tried for `webhooks.give_up`
    STORE_FAILED = "store_failed"
    DELETED = "deleted"  # the webhook was deleted, or disabled


LOST = (Result.QUEUE_FULL, Result.GIVEN_UP, Result.STORE_FAILED)


@dataclass(frozen=True, slots=True)
class Target:
    """One webhook that is enabled. `secrets`: the newest first; an older one signs, too, for a day after it was replaced."""

    id: int
    tenant_id: int
    label: str  # "TENANT/NAME"; "NAME" of the platform's
    url: str
    events: frozenset[str]
    secrets: tuple[bytes, ...] = field(repr=False)

    def wants(self, tenant_id: int, kind: str) -> bool:
        """Say whether it gets an event of this kind of this tenant's."""
        if self.tenant_id not in (PLATFORM, tenant_id):
            return False
        return bool(self.events & {"*", kind, f"{kind.partition('/')[0]}/*"})


class Attempt(NamedTuple):
    """One attempt to deliver an event, or its end. `status`: of the HTTP response; 0: there was none."""

    webhook_id: int
    at_ms: int
    event_id: str
    event: str
    result: str
    status: int
    detail: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """How events are delivered. `networks`: private networks that may be reached all the same."""

    networks: tuple[Network, ...]
    timeout_s: float
    give_up_s: float
    queue_bytes: int


OnAttempts = Callable[[Sequence[Attempt]], None]
