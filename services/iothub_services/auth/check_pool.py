"""A pool of threads for credential checks that cost CPU, bounded in total, per tenant and per source of guesses.

Knows no credential: passwords and tokens bring their own work and their own memory of what was proven. They share this pool, so
that neither a refusal nor its time shows which kind of credential a device has.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from iothub.base.clock import Clock
from iothub_services.auth.lru import LruSettings
from iothub_services.auth.port import Run
from iothub_services.auth.secrets import mac

K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")
T = TypeVar("T")

FAILED_REPLY_S = 0.5  # every failed CONNECT is answered this long after its arrival, so that the time of a refusal gives nothing away
_FIRST_GUESS_S = 0.04  # of the time that one check takes
_SMOOTHING = 0.1


class PoolFullError(Exception):
    """The pool is full; known and unknown devices are refused alike."""


class TooManyGuessesError(Exception):
    """One source already has several secrets of one device under check; the next is refused without a check."""


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """`threads`: size of the pool behind `run`. `pending`: checks running or waiting, `tenant_pending`: of one tenant.

    `guesses`: different secrets that one source may have under check for one device. `proven`: what each kind of check remembers.
    """

    threads: int = 2
    pending: int = 256
    tenant_pending: int = 192
    guesses: int = 2
    proven: LruSettings = field(default_factory=lambda: LruSettings(entries=50_000, ttl_s=3600.0))


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom something is checked. `source`: what counts as one address."""

    tenant_id: int
    device: str
    source: str


class CheckPool:
    """All checks of this process; must be used on the reactor thread."""

    def __init__(self, run: Run, clock: Clock, settings: CheckSettings) -> None:
        self.clock = clock
        self.settings = settings
        self._run = run
        self._key = os.urandom(32)
        self._guesses: Counter[Asker] = Counter()
        self._tenants: Counter[int] = Counter()
        self._kinds: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}  # that a check of each kind takes, smoothed

    def apply(self, settings: CheckSettings) -> None:
        """Hold other bounds from now on; `threads` and `proven` must be the same."""
        self.settings = settings

    @property
    def is_pressed(self) -> bool:
        """Say whether a check of some device would be refused now. O(tenants under check)."""
        return self._is_full or max(self._tenants.values(), default=0) >= self.settings.tenant_pending

    @property
    def _is_full(self) -> bool:
        return self._kinds.total() >= self.settings.pending

    def reply_after_s(self) -> float:
        """Return when a CONNECT that arrives now and fails is answered, in seconds from its arrival.

        0.5, and a multiple of it while checks queue up: otherwise late answers would show which devices have a secret to check.
        """
        if not self._kinds:
            return FAILED_REPLY_S
        threads = self.settings.threads
        wait_s = sum((count // threads + 1) * self._seconds_of(kind) for kind, count in self._kinds.items())
        return FAILED_REPLY_S * max(1, math.ceil(wait_s / FAILED_REPLY_S))

    def digest(self, kind: str, asker: Asker, bound_to: str, secret: bytes) -> bytes:
        """Return a name of this secret of this device that means something only in this process.

        `bound_to`: what the answer depends on besides; when that changes, nothing that was remembered is found.
        """
        # No part before the last can hold U+0000 (names and hashes have alphabets), so no two inputs read the same.
        bound = f"{kind}\0{asker.tenant_id}\0{asker.device}\0{bound_to}\0".encode()
        return mac(bound + secret, self._key)

    @contextmanager
    def place(self, kind: str, asker: Asker) -> Iterator[None]:
        """Reserve a place for one check.

        Raises:
            PoolFullError: there is none; try again later.
            TooManyGuessesError: this source tries several secrets of this device at once.
        """
        if self._is_full or self._tenants[asker.tenant_id] >= self.settings.tenant_pending:
            raise PoolFullError
        if self._guesses[asker] >= self.settings.guesses:
            raise TooManyGuessesError
        self._guesses[asker] += 1
        self._tenants[asker.tenant_id] += 1
        self._kinds[kind] += 1
        try:
            yield
        finally:
            _release(self._guesses, asker)
            _release(self._tenants, asker.tenant_id)
            _release(self._kinds, kind)

    async def run(self, kind: str, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Check in a thread."""

        def timed() -> tuple[T, float]:
            started_at = self.clock.monotonic()
            answer = check(*args, **kwargs)
            return answer, self.clock.monotonic() - started_at

        answer, seconds = await self._run(f"auth.{kind}", timed)
        smoothed = self._seconds_of(kind)
        self._seconds[kind] = smoothed + _SMOOTHING * (seconds - smoothed)
        return answer

    def _seconds_of(self, kind: str) -> float:
        return self._seconds.get(kind, _FIRST_GUESS_S)


def _release(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
