"""The retained-message port: what every driver must do.

Knows no wildcard and no session: the index of topics is the caller's (`retained.index`),
bodies are encoded messages (`iothub.records.message`).
All methods block; drivers run in a thread of their own.

Invariant: each write gets a version from a counter per tenant that outlives every message. Caches compare versions, never clocks; a version
that restarts would leave an old message in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class RetainedWrite(NamedTuple):
    """Replace (or, with `body` None, delete) the Retained Message of one Topic Name."""

    tenant_id: int
    topic: bytes
    body: bytes | None
    expires_at_ms: int = 0  # Unix time, 0: never


class RetainedTopic(NamedTuple):
    """One line of a tenant's index. `size`: bytes of the body."""

    topic: bytes
    version: int
    expires_at_ms: int
    size: int


class RetainedBody(NamedTuple):
    """One stored Retained Message. The body's own checksum says whether it is whole (`iothub.records.message.decode_message`)."""

    topic: bytes
    version: int
    expires_at_ms: int
    body: bytes


class RetainedUsage(NamedTuple):
    """What one tenant has stored."""

    messages: int
    bytes: int


class RetainedStore(Protocol):
    """One contract suite (`iothub.testing.retained_contract`) holds every driver to this.

    A damaged message is listed and fetched like any other, until it is replaced or deleted. Numbers of it that are lost are 0.
    """

    def group(self) -> AbstractContextManager[None]:
        """Everything done inside is one commit."""

    def put(self, writes: list[RetainedWrite]) -> list[int]:
        """Durable when it returns; per write its version.

        Versions come from a counter of the tenant that outlives deletion and never goes back.
        """

    def load(self, tenant_id: int, after: bytes = b"") -> Iterator[RetainedTopic]:
        """Every topic of a tenant that follows `after`, ascending."""

    def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        """Bodies in the order asked for; topics without one are left out."""

    def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        """Delete and return how many there were; each deletion takes a version."""

    def expire(self, now_ms: int, count: int) -> list[tuple[int, bytes]]:
        """Delete at most `count` messages whose time has come; returns (tenant_id, topic)."""

    def usage(self, tenant_id: int) -> RetainedUsage: ...

    def drop_tenant(self, tenant_id: int) -> int:
        """Remove everything of a tenant, its counter too; returns how many messages."""

    def close(self) -> None: ...
