"""Repeated failures: too many wrong credentials from one address ban it for a while.

Knows no credentials and no reply. The ban is for (tenant, device, address), so that a client at another address is not locked out.
Names need not exist: unknown ones count alike, otherwise a ban would show which names exist.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from iothub.base.clock import Clock


@dataclass(frozen=True, slots=True)
class FailureSettings:
    """`failures` within `window_s` ban for `ban_s`; at most `entries` are remembered, the longest untouched is forgotten first."""

    failures: int = 10
    window_s: float = 60.0
    ban_s: float = 900.0
    entries: int = 20_000


@lru_cache(maxsize=4096)  # the same few addresses come again and again
def source_of(address: str) -> str:
    """Return what counts as one source: an IPv4 address, or the /64 of an IPv6 address, which one host has to itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"


@dataclass(frozen=True, slots=True)
class FailureBan:
    """A ban in force, of one device from one source (`source_of`); it is over in `left_s` seconds."""

    device: str
    address: str
    left_s: float


class _Record:
    __slots__ = ("banned_until", "count", "started_at")

    def __init__(self, now: float) -> None:
        self.started_at = now
        self.count = 0
        self.banned_until = now  # not banned yet


class Failures:
    """The failures of late; must be used on one thread. Invariant: never more than `entries` records."""

    def __init__(self, settings: FailureSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._records: dict[tuple[str, str, str], _Record] = {}  # the longest untouched first

    def __len__(self) -> int:
        return len(self._records)

    def apply(self, settings: FailureSettings) -> None:
        """Judge by other settings from now on; bans in force keep their end."""
        self.settings = settings

    def is_banned(self, tenant: str, device: str, address: str) -> bool:
        """Say whether this device is banned from this address now."""
        record = self._records.get((tenant, device, address))
        return record is not None and self._clock.monotonic() < record.banned_until

    def has_any(self, tenant: str, device: str, address: str) -> bool:
        """Say whether a failure of this device from this address is remembered."""
        return (tenant, device, address) in self._records

    def count(self, tenant: str, device: str, address: str) -> bool:
        """Count one failure; return whether it began a ban."""
        now = self._clock.monotonic()
        key = (tenant, device, address)
        record = self._records.pop(key, None)
        is_over = record is None or now - max(record.started_at, record.banned_until) >= self.settings.window_s
        if record is None or is_over:
            record = _Record(now)
        self._make_room()
        self._records[key] = record
        if now < record.banned_until:
            return False  # a check that had begun before the ban
        record.count += 1
        if record.count < self.settings.failures:
            return False
        record.banned_until = now + self.settings.ban_s
        record.count = 0
        return True

    def ban(self, tenant: str, device: str, address: str, left_s: float) -> None:
        """Ban for so long, as another hub does; a ban that is in force for longer stays."""
        now = self._clock.monotonic()
        key = (tenant, device, address)
        record = self._records.pop(key, None) or _Record(now)
        record.banned_until = max(record.banned_until, now + left_s)
        self._make_room()
        self._records[key] = record

    def clear(self, tenant: str, device: str, address: str) -> None:
        """Forget the failures: a credential was proven."""
        self._records.pop((tenant, device, address), None)

    def bans(self, tenant: str) -> list[FailureBan]:
        """Return a tenant's bans in force by device and address. O(entries)."""
        found = [
            FailureBan(device, address, left_s) for owner, device, address, left_s in self.in_force() if owner == tenant
        ]
        return sorted(found, key=lambda ban: (ban.device, ban.address))

    def in_force(self) -> list[tuple[str, str, str, float]]:
        """Return tenant, device, address and seconds left of all bans, the longest untouched first. O(entries)."""
        now = self._clock.monotonic()
        return [(*key, record.banned_until - now) for key, record in self._records.items() if now < record.banned_until]

    def lift(self, tenant: str, device: str, address: str | None = None) -> int:
        """End a device's bans, those from one address or all, as a person wishes; return how many there were. O(entries)."""
        sources = [ban.address for ban in self.bans(tenant) if ban.device == device]
        lifted = [source for source in sources if address in (None, source)]
        for source in lifted:
            self.clear(tenant, device, source)
        return len(lifted)

    def forget_devices(self, tenant: str, names: Collection[str]) -> None:
        """Forget everything about devices that were deleted: others may get their names. O(entries)."""
        for key in [key for key in self._records if key[0] == tenant and key[1] in names]:
            del self._records[key]

    def forget_tenant(self, tenant: str) -> None:
        """Forget everything about a tenant that was deleted: another one may get its name. O(entries)."""
        for key in [key for key in self._records if key[0] == tenant]:
            del self._records[key]

    def banned(self) -> int:
        """Return how many are banned now, for the metric. O(entries)."""
        return len(self.in_force())

    def _make_room(self) -> None:
        while len(self._records) >= self.settings.entries:
            del self._records[next(iter(self._records))]
