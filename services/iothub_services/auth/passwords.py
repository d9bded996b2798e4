"""Checks of chosen passwords: tens of milliseconds of work each, so bounded, shared and remembered.

Knows no accounts and no reply. One check per (device, password) runs at a time and its answer is shared; a password that was
proven is remembered as a keyed hash of this process, bound to the stored credential: changing that forgets it.
"""

from __future__ import annotations

import hmac

from iothub_services.auth.check_pool import Asker, CheckPool
from iothub_services.auth.lru import Lru
from iothub_services.auth.secrets import verify_password
from iothub_services.auth.single_flight import SingleFlight

KIND = "password"


class PasswordChecks:
    """Must be used on the reactor thread."""

    def __init__(self, pool: CheckPool) -> None:
        self._pool = pool
        self._proven: Lru[tuple[int, str], bytes] = Lru(pool.settings.proven, pool.clock)
        self._running: SingleFlight[bytes, bool] = SingleFlight()

    def recall(self, asker: Asker, stored: str, password: bytes) -> bool:
        """Say whether `password` was proven before to be the one of `stored`; if not, `check` decides."""
        proven = self._proven.recall((asker.tenant_id, asker.device))
        return proven is not None and hmac.compare_digest(proven, self._pool.digest(KIND, asker, stored, password))

    async def check(self, asker: Asker, stored: str, password: bytes) -> bool:
        """Say whether `password` is the one of `stored`. Raises PoolFullError, TooManyGuessesError."""
        digest = self._pool.digest(KIND, asker, stored, password)
        whose = (asker.tenant_id, asker.device)
        proven = self._proven.get(whose)
        if isinstance(proven, bytes) and hmac.compare_digest(proven, digest):
            return True
        if digest in self._running:
            return await self._running.join(digest, lambda: self._check(stored, password))
        with self._pool.place(KIND, asker):
            is_right = await self._running.join(digest, lambda: self._check(stored, password))
        if is_right:
            self._proven.put(whose, digest)
        return is_right

    async def _check(self, stored: str, password: bytes) -> bool:
        return await self._pool.run(KIND, verify_password, password, stored)
