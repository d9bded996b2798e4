"""Checks of tokens (JWT): done in threads like those of passwords, shared, and remembered as long as the token lasts.

Knows no claim and no key: `tokens` does, and is loaded with its libraries when the first token comes. What was proven is found again only
under the same version of the tenant: any change of its accounts forgets it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace
from enum import Enum

from iothub_services.auth.check_pool import Asker, CheckPool
from iothub_services.auth.flights import Flights
from iothub_services.auth.lru import Lru
from iothub_services.auth.port import TenantRecord, TokenIssuer, TokenKey

KIND = "token"
MAX_TOKEN_BYTES = 8192  # as long as web servers let a header be, which is where tokens come from


class TokenFault(Enum):
    """Why a token proves nothing; the word is for log and metric alone."""

    TOO_LARGE = "token_too_large"
    MALFORMED = "token_malformed"  # not three parts of base64url, or the header is not what it must be
    ALGORITHM = "token_algorithm"  # none of the tenant's issuers signs like that
    UNKNOWN_KEY = "token_unknown_key"  # no issuer has a key of this name
    SIGNATURE = "token_signature"
    CLAIMS = "token_claims"  # `exp` is missing, or a time is not one
    SUBJECT = "token_subject"  # it is another device's
    ISSUER = "token_issuer"
    AUDIENCE = "token_audience"
    EXPIRED = "token_expired"
    NOT_YET_VALID = "token_not_yet_valid"

    @property
    def is_a_guess(self) -> bool:
        """Say whether it counts as a failed login: what is right but for the time is no guess, its device only needs a new one."""
        return self not in {TokenFault.EXPIRED, TokenFault.NOT_YET_VALID}


@dataclass(frozen=True, slots=True)
class TokenProof:
    """What a token has proven: who signed it with which key, and from when to when it is good, in Unix seconds (leeway included)."""

    issuer: TokenIssuer
    key: TokenKey
    begins_at: float
    ends_at: float

    def fault_at(self, now: float) -> TokenFault | None:
        if now >= self.ends_at:
            return TokenFault.EXPIRED
        return TokenFault.NOT_YET_VALID if now < self.begins_at else None

    def stands(self, issuers: tuple[TokenIssuer, ...]) -> bool:
        """Say whether, of these issuers, the same one would still sign with this key and under the same conditions."""
        conditions = replace(self.issuer, keys=())
        return any(self.key in issuer.keys and replace(issuer, keys=()) == conditions for issuer in issuers)


class TokenChecks:
    """Must be used on the reactor thread."""

    def __init__(self, pool: CheckPool, pepper: bytes) -> None:
        self._pool = pool
        self._pepper = pepper
        self._proven: Lru[tuple[int, str], tuple[bytes, TokenProof]] = Lru(pool.settings.proven, pool.clock)
        self._flights: Flights[bytes, TokenProof | TokenFault] = Flights()

    async def check(self, asker: Asker, tenant: TenantRecord, token: bytes) -> TokenProof | TokenFault:
        """Return what the token proves for the asker's device of `tenant`. Raises PoolFullError, TooManyGuessesError."""
        if len(token) > MAX_TOKEN_BYTES:
            return TokenFault.TOO_LARGE  # hashing it would be work that a stranger asks for
        digest = self._pool.digest(KIND, asker, str(tenant.version), token)
        whose = (asker.tenant_id, asker.device)
        proven = self._proven.get(whose)
        if isinstance(proven, tuple) and hmac.compare_digest(proven[0], digest):
            return proven[1].fault_at(self._pool.clock.wall()) or proven[1]
        if digest in self._flights:
            return await self._flights.join(digest, lambda: self._check(asker.device, tenant, token))
        with self._pool.place(KIND, asker):
            answer = await self._flights.join(digest, lambda: self._check(asker.device, tenant, token))
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
