"""The second level of the cache of accounts: records in Redis, for all hubs of an installation and for a hub that has just started.

Knows no credential and no decision, and nothing of SQL. The change-log watermark decides whether a record may be used, its signature whether it
is ours.

Theory. A hub with a cold cache asks here before it asks SQL. An entry is used only if (1) its signature is ours and for this key, and (2) the
watermark shows that nothing which concerns it has changed since. So Redis may lose, delay, double, reorder, resurrect or invent entries: the answer
is SQL's or none. Two hubs H and G, and a change c of a device: G stored the old record, read as of a < c. As soon as H has seen c, it refuses an
entry with as_of < c, whenever that was stored; an entry with as_of >= c was read from SQL by a hub that had seen c, after c was committed. Until H
has seen c (a poll, `sql.poll_interval`) it may use the old one, as it may from its own memory, and the answer is discarded when c is seen before
the session begins (`Authenticator.is_current`). When H cannot read the change log, it uses entries only as long as its own memory would.

A call that Redis does not answer is a miss, at once while the client is degraded; then SQL answers as if there was no Redis.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub_services.auth.change_watermark import NOTHING_SEEN, ChangePosition, ChangeWatermark
from iothub_services.auth.lru import MISSING, Missing
from iothub_services.auth.port import DeviceRecord, TenantRecord
from iothub_services.auth.signed_entries import FORM, MOST_BYTES, EntrySigner, ForgedError, SignedEntry
from iothub_services.redis.calls import Call, Reply, command

log = logging.get(__name__)

Record = TypeVar("Record", TenantRecord, DeviceRecord)

NEGATIVE_TTL_S = 60.0  # made-up names must not fill Redis
RESULTS = ("hit", "miss", "stale", "forged", "failed")
_LATELY_S = 300.0


class Redis(Protocol):
    """`iothub_services.redis.client.RedisClient`."""

    def run_many(self, calls: Sequence[Call]) -> Awaitable[list[Reply]]: ...


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """`scope`: returns the prefix of our keys; called at each use, because accounts on a server name the installation only when they answer.

    Ages, each shortened by up to `jitter` of itself, only free memory of Redis; they never make a record valid.
    """

    scope: Callable[[], str]
    ttl_s: float = 86_400.0
    negative_ttl_s: float = NEGATIVE_TTL_S  # for the answer None
    jitter: float = 0.2


class SharedRecords:
    """Must be used on the reactor thread."""

    def __init__(
        self,
        redis: Redis,
        watermark: ChangeWatermark,
        pepper: bytes,
        clock: Clock,
        settings: SharedSettings,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._redis = redis
        self.watermark = watermark
        self._signer = EntrySigner(pepper)
        self._clock = clock
        self._settings = settings
        self._uniform = uniform
        self._forged_at: float | None = None
        self._counts: dict[str, int] = dict.fromkeys(RESULTS, 0)

    def results(self) -> dict[str, int]:
        """Return how often each of `RESULTS` was the result of a look-up."""
        return dict(self._counts)

    @property
    def is_forged_lately(self) -> bool:
        """Whether an entry with a foreign signature was found within the last minutes."""
        return self._forged_at is not None and self._clock.monotonic() - self._forged_at < _LATELY_S

    async def tenant(self, name: str) -> TenantRecord | Missing | None:
        """Return the tenant of this name, None if there is none, `MISSING` if that must be asked elsewhere."""
        place = self._place("t", name)
        found = await self._get(place, self._signer.open_tenant)
        if isinstance(found, Missing):
            return found
        tenant_id = 0 if found.record is None else found.record.id
        return self._judged(found.record, self.watermark.has_tenant(name, tenant_id, found.as_of))

    async def device(self, tenant_id: int, name: str) -> DeviceRecord | Missing | None:
        """Return the tenant's device of this name, None if there is none, `MISSING` if that must be asked elsewhere."""
        place = self._place("d", f"{tenant_id}:{name}")
        found = await self._get(place, self._signer.open_device)
        if isinstance(found, Missing):
            return found
        return self._judged(found.record, self.watermark.has_device(tenant_id, name, found.as_of))

    def put_tenant(self, name: str, as_of: ChangePosition, tenant: TenantRecord | None) -> None:
        """Store SQL's answer to a question that was asked when `as_of` had been seen. Callers do not wait for it."""
        place = self._place("t", name)
        self._put(place, as_of, self._signer.sign_tenant(place, SignedEntry(as_of, tenant)), is_negative=tenant is None)

    def put_device(self, tenant_id: int, name: str, as_of: ChangePosition, device: DeviceRecord | None) -> None:
        """As `put_tenant`."""
        place = self._place("d", f"{tenant_id}:{name}")
        self._put(place, as_of, self._signer.sign_device(place, SignedEntry(as_of, device)), is_negative=device is None)

    def _place(self, kind: str, name: str) -> bytes:
        return f"{self._settings.scope()}auth:{FORM}:{kind}:{name}".encode()

    async def _get(
        self, place: bytes, opened: Callable[[bytes, bytes], SignedEntry[Record]]
    ) -> SignedEntry[Record] | Missing:
        if self.watermark.left_s() <= 0:
            return self._counted("failed")
        (reply,) = await self._redis.run_many([command("GET", place)])
        if reply is None:
            return self._counted("miss")
        if not isinstance(reply, bytes) or self.watermark.left_s() <= 0:  # Redis may have taken its time
            return self._counted("failed")
        try:
            return opened(place, reply)
        except ForgedError:
            self._forged(place)
            return self._counted("forged")

    def _judged(self, record: Record | None, is_current: bool) -> Record | Missing | None:
        self._counts["hit" if is_current else "stale"] += 1
        return record if is_current else MISSING

    def _counted(self, result: str) -> Missing:
        self._counts[result] += 1
        return MISSING

    def _forged(self, place: bytes) -> None:
        self._forged_at = self._clock.monotonic()
        log.warning("entry in Redis ignored: its signature is not ours", key=place.decode(errors="replace"))

    def _put(self, place: bytes, as_of: ChangePosition, octets: bytes, *, is_negative: bool) -> None:
        if as_of == NOTHING_SEEN or len(octets) > MOST_BYTES:
            return
        settings = self._settings
        ttl_s = settings.negative_ttl_s if is_negative else settings.ttl_s
        ttl_ms = max(int(ttl_s * 1000 * (1.0 - settings.jitter * self._uniform())), 1)
        kept = self._redis.run_many([command("SET", place, octets, "PX", ttl_ms)])
        if isinstance(kept, Deferred):
            kept.addCallback(_note_refusal)


def _note_refusal(replies: list[Reply]) -> None:
    """Log that an entry was not stored; the client of Redis raises the alarm and counts refused calls."""
    if isinstance(replies[0], BackendError) and not replies[0].is_written:
        log.debug("could not store an entry in Redis", error=str(replies[0]))
