"""Is this token (JWT, RFC 7519) a proof for this device, at this moment? The answer, or which of the few faults it has.

Knows no cache, no thread and no store. Pure functions of what they are given; up to some milliseconds of CPU, so they belong in a thread.

Theory. A token says nothing about how it is to be checked: the algorithm and the keys are its issuer's, `alg` must be the same word, and
`kid` only chooses among keys that are there. The signature is checked first, so unsigned claims are never read. A token with
an `aud` is for whom that names: an issuer without an audience of ours accepts only tokens without one (RFC 7519 §4.1.3).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from jwt.algorithms import Algorithm
from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError

from iothub_services.auth.port import TokenAlgorithm, TokenIssuer, TokenKey
from iothub_services.auth.token_keys import ready_key
from iothub_services.auth.token_proof import TokenFault, TokenProof

_SHAPE = re.compile(
    rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"
)  # three parts, no padding; an unsigned token has two
_UNDERSTOOD_NOWHERE = ("crit", "b64")  # headers that change what the rest means (RFC 7515 §4.1.11, RFC 7797)
_FAR_FUTURE = 253_402_300_800.0  # the year 10000: no clock of ours gets there


@dataclass(frozen=True, slots=True)
class _Opened:
    """A token taken apart, nothing of it believed yet."""

    algorithm: str
    key_id: str | None
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    payload: bytes = field(repr=False)


def prove(
    token: bytes, issuers: tuple[TokenIssuer, ...], names: tuple[str, str], now: float, pepper: bytes
) -> TokenProof | TokenFault:
    """Return what the token proves. `names`: the device's, and with its tenant's in front; `now`: Unix seconds."""
    opened = _open(token)
    if opened is None:
        return TokenFault.MALFORMED
    candidates = list(_candidates(opened, issuers))
    if not candidates:
        is_ours = any(issuer.algorithm.value == opened.algorithm for issuer in issuers)
        return TokenFault.UNKNOWN_KEY if is_ours else TokenFault.ALGORITHM
    fault = TokenFault.SIGNATURE
    for issuer, key in candidates:
        if _is_signed(opened, issuer.algorithm, key, pepper):
            answer = _judge(opened.payload, issuer, key, names, now)
            if isinstance(answer, TokenProof):
                return answer
            fault = answer
    return fault


def _open(token: bytes) -> _Opened | None:
    if not _SHAPE.fullmatch(token):
        return None
    try:
        parts = _jws().decode_complete(token, options={"verify_signature": False})
    except (PyJWTError, ValueError, RecursionError):
        return None
    header = parts["header"]
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or any(name in header for name in _UNDERSTOOD_NOWHERE):
        return None
    return _Opened(algorithm, header.get("kid"), token.rpartition(b".")[0], parts["signature"], parts["payload"])


def _candidates(opened: _Opened, issuers: tuple[TokenIssuer, ...]) -> Iterator[tuple[TokenIssuer, TokenKey]]:
    """Yield the keys that may have signed it: of the same algorithm, and not of another name. As many as a tenant may have, at most."""
    for issuer in issuers:
        if issuer.algorithm.value == opened.algorithm:
            for key in issuer.keys:
                if not opened.key_id or not key.id or key.id == opened.key_id:
                    yield issuer, key


def _is_signed(opened: _Opened, algorithm: TokenAlgorithm, key: TokenKey, pepper: bytes) -> bool:
    ready = ready_key(algorithm, key.material, pepper)
    return ready is not None and _algorithm(algorithm).verify(opened.signed, ready, opened.signature)


def _judge(
    payload: bytes, issuer: TokenIssuer, key: TokenKey, names: tuple[str, str], now: float
) -> TokenProof | TokenFault:
    """Look at the claims of a token that this issuer has signed."""
    claims = _claims(payload)
    if claims is None:
        return TokenFault.CLAIMS
    expires_at, begins = (
        _moment(claims.get("exp")),
        [_moment(claims[name]) for name in ("nbf", "iat") if name in claims],
    )
    if expires_at is None or None in begins:
        return TokenFault.CLAIMS
    if claims.get("sub") not in names:
        return TokenFault.SUBJECT
    if issuer.issuer and claims.get("iss") != issuer.issuer:
        return TokenFault.ISSUER
    if not _is_for_us(claims.get("aud"), issuer.audience):
        return TokenFault.AUDIENCE
    begins_at = max((moment for moment in begins if moment is not None), default=-math.inf)
    proof = TokenProof(issuer, key, begins_at - issuer.leeway_s, expires_at + issuer.leeway_s)
    return proof.fault_at(now) or proof


def _claims(payload: bytes) -> Mapping[str, object] | None:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def _moment(value: object) -> float | None:
    """Read a NumericDate (RFC 7519 §2): a number, and one that a clock may show. None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _FAR_FUTURE else None  # not for NaN either


def _is_for_us(audience: object, ours: str) -> bool:
    if audience is None:
        return not ours
    named = audience if isinstance(audience, list) else [audience]
    return bool(ours) and ours in named


@cache
def _jws() -> PyJWS:
    return PyJWS(algorithms=[each.value for each in TokenAlgorithm])


@cache
def _algorithm(algorithm: TokenAlgorithm) -> Algorithm:
    return _jws().get_algorithm_by_name(algorithm.value)
