"""What a check of a token (JWT) says: the proof, or the fault.

Knows no signature and no libraries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from iothub_services.auth.port import TokenIssuer, TokenKey

MAX_TOKEN_BYTES = 8192  # as long as web servers let a header be, which is where tokens come from


class TokenFault(Enum):
    """Why a token proves nothing; only log and metric show it."""

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
