"""Checks of chosen passwords: tens of milliseconds of work each, so bounded, shared and remembered.

Knows no accounts and no reply. One check per (device, password) runs at a time and its answer is shared; a password that was
proven is remembered as a keyed hash of this process, bound to the stored credential: changing that forgets it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from iothub.clock import Clock
from iothub_services.auth.flights import Flights
from iothub_services.auth.lru import Lru, LruSettings
from iothub_services.auth.port import Run
from iothub_services.auth.secrets import verify_password

K = TypeVar("K", bound=Hashable)

FAILED_REPLY_S = 0.25  # every failed CONNECT is answered this long after its arrival (tenancy page, section 1)
_FIRST_GUESS_S = 0.04  # of the time that one check takes
_SMOOTHING = 0.1


class PoolFullError(Exception):
    """No check can be taken on; known and unknown devices are refused alike."""


class TooManyGuessesError(Exception):
    """One source has different passwords of one device under check already; the next is refused unseen."""


@dataclass(frozen=True, slots=True)
class PasswordSettings:
    """`threads`: size of the pool behind `run`. `pending`: checks running or waiting, `tenant_pending`: of one tenant.

    `guesses`: different passwords that one source may have under check for one device.
    """

    threads: int = 2
    pending: int = 256
    tenant_pending: int = 192
    guesses: int = 2
    proven: LruSettings = field(default_factory=lambda: LruSettings(entries=50_000, ttl_s=3600.0))


class PasswordChecks:
    """All checks of this process; must be used on the reactor thread."""

    def __init__(self, run: Run, clock: Clock, settings: PasswordSettings) -> None:
        self._run = run
        self._clock = clock
        self._settings = settings
        self._key = os.urandom(32)
        self._proven: Lru[tuple[int, str], bytes] = Lru(settings.proven, clock)
        self._flights: Flights[bytes, bool] = Flights()
        self._guesses: Counter[tuple[int, str, str]] = Counter()
        self._tenants: Counter[int] = Counter()
        self._check_s = _FIRST_GUESS_S

    @property
    def is_pressed(self) -> bool:
        """Some device's check would not be taken on now. O(tenants under check)."""
        return self._is_full or max(self._tenants.values(), default=0) >= self._settings.tenant_pending

    @property
    def _is_full(self) -> bool:
        return len(self._flights) >= self._settings.pending

    def reply_after_s(self) -> float:
        """Return when a CONNECT that arrives now and fails is answered, in seconds from its arrival.

        0.25, and a multiple of it while checks queue up: or late answers would tell which devices have a password to check.
        """
        flights = len(self._flights)
        if not flights:
            return FAILED_REPLY_S
        wait_s = (flights // self._settings.threads + 1) * self._check_s
        return FAILED_REPLY_S * max(1, math.ceil(wait_s / FAILED_REPLY_S))

    async def check(self, tenant_id: int, device: str, stored: str, password: bytes, source: str) -> bool:
        """Say whether `password` is the one of `stored`.

        Raises:
            PoolFullError: the pool has no room; try again later.
            TooManyGuessesError: `source` tries several passwords of this device at once.
        """
        digest = self._digest(tenant_id, device, stored, password)
        proven = self._proven.get((tenant_id, device))
        if isinstance(proven, bytes) and hmac.compare_digest(proven, digest):
            return True
        if digest in self._flights:
            return await self._flights.join(digest, lambda: self._check(stored, password))
        guess = (tenant_id, device, source)
        if self._is_full or self._tenants[tenant_id] >= self._settings.tenant_pending:
            raise PoolFullError
        if self._guesses[guess] >= self._settings.guesses:
            raise TooManyGuessesError
        self._guesses[guess] += 1
        self._tenants[tenant_id] += 1
        try:
            is_right = await self._flights.join(digest, lambda: self._check(stored, password))
        finally:
            _release(self._guesses, guess)
            _release(self._tenants, tenant_id)
        if is_right:
            self._proven.put((tenant_id, device), digest)
        return is_right

    async def _check(self, stored: str, password: bytes) -> bool:
        is_right, seconds = await self._run("auth.password", self._timed, stored, password)
        self._check_s += _SMOOTHING * (seconds - self._check_s)
        return is_right

    def _timed(self, stored: str, password: bytes) -> tuple[bool, float]:
        started_at = self._clock.monotonic()
        is_right = verify_password(password, stored)
        return is_right, self._clock.monotonic() - started_at

    def _digest(self, tenant_id: int, device: str, stored: str, password: bytes) -> bytes:
        # No part before the last can hold U+0000 (names and hashes have alphabets), so no two inputs read the same.
        return hmac.digest(self._key, f"{tenant_id}\0{device}\0{stored}\0".encode() + password, hashlib.sha256)


def _release(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
