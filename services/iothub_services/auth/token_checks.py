"""Checks of tokens (JWT): done in threads like those of passwords, shared, and remembered as long as the token lasts.

Knows no claim and no key: `tokens` does, and is loaded with its libraries when the first token comes. What was proven is found again only
under the same version of the tenant: any change of its accounts forgets it.
"""

from __future__ import annotations

import hmac

from iothub_services.auth.check_pool import Asker, CheckPool
from iothub_services.auth.lru import Lru
from iothub_services.auth.port import TenantRecord, TokenIssuer
from iothub_services.auth.single_flight import SingleFlight
from iothub_services.auth.token_proof import MAX_TOKEN_BYTES, TokenFault, TokenProof

KIND = "token"


class TokenChecks:
    """Must be used on the reactor thread."""

    def __init__(self, pool: CheckPool, pepper: bytes) -> None:
        self._pool = pool
        self._pepper = pepper
        self._proven: Lru[tuple[int, str], tuple[bytes, TokenProof]] = Lru(pool.settings.proven, pool.clock)
        self._running: SingleFlight[bytes, TokenProof | TokenFault] = SingleFlight()

    async def check(self, asker: Asker, tenant: TenantRecord, token: bytes) -> TokenProof | TokenFault:
        """Return what the token proves for the asker's device of `tenant`. Raises PoolFullError, TooManyGuessesError."""
        if len(token) > MAX_TOKEN_BYTES:
            return TokenFault.TOO_LARGE  # anybody can send it: it is not worth a hash
        digest = self._pool.digest(KIND, asker, str(tenant.version), token)
        whose = (asker.tenant_id, asker.device)
        proven = self._proven.get(whose)
        if isinstance(proven, tuple) and hmac.compare_digest(proven[0], digest):
            return proven[1].fault_at(self._pool.clock.wall()) or proven[1]
        if digest in self._running:
            return await self._running.join(digest, lambda: self._check(asker.device, tenant, token))
        with self._pool.place(KIND, asker):
            answer = await self._running.join(digest, lambda: self._check(asker.device, tenant, token))
        if isinstance(answer, TokenProof):
            self._proven.put(whose, (digest, answer))
        return answer

    async def _check(self, device: str, tenant: TenantRecord, token: bytes) -> TokenProof | TokenFault:
        names = (device, f"{tenant.name}/{device}")
        now = self._pool.clock.wall()
        return await self._pool.run(KIND, _prove, token, tenant.token_issuers, names, now, self._pepper)


def _prove(
    token: bytes, issuers: tuple[TokenIssuer, ...], names: tuple[str, str], now: float, pepper: bytes
) -> TokenProof | TokenFault:
    from iothub_services.auth import tokens  # PyJWT and cryptography: 8 MiB that a hub without tokens does without

    return tokens.prove(token, issuers, names, now, pepper)
