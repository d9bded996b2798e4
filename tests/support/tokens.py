"""Keys and tokens (JWT) for tests: right ones, and wrong ones of every kind. Keys are made once per process.

Knows no hub: signing is done here with the library's own primitives, parts of a token are put together by hand.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

from iothub_services.auth.port import TokenAlgorithm, TokenIssuer, TokenKey
from iothub_services.auth.token_keys import seal

ES256, RS256, EDDSA, HS256 = "ES256", "RS256", "EdDSA", "HS256"
PUBLIC = (ES256, RS256, EDDSA)
SECRET = b"a secret that both sides know, 42"
_WRITERS: dict[str, Any] = {ES256: ECAlgorithm, RS256: RSAAlgorithm, EDDSA: OKPAlgorithm}


def private_key(algorithm: str, number: int = 0) -> Any:
    """A key pair; each number is another one."""
    return _made(algorithm, number)


@cache
def _made(algorithm: str, _number: int) -> Any:
    if algorithm == ES256:
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == EDDSA:
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


def pem_of(key: Any) -> str:
    """A public key's PEM."""
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    text: str = key.public_bytes(encoding, form).decode()
    return text


def public_pem(algorithm: str, number: int = 0) -> str:
    return pem_of(private_key(algorithm, number).public_key())


def private_pem(algorithm: str) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    text: str = private_key(algorithm).private_bytes(encoding, form, serialization.NoEncryption()).decode()
    return text


def jwk(algorithm: str, kid: str | None = None, number: int = 0, **more: object) -> dict[str, object]:
    """A public key as JWK."""
    found: dict[str, object] = json.loads(_WRITERS[algorithm].to_jwk(private_key(algorithm, number).public_key()))
    return found | ({"kid": kid} if kid is not None else {}) | more


def issuer(algorithm: str = ES256, name: str = "fleet", *, kid: str = "", number: int = 0, **more: Any) -> TokenIssuer:
    """An issuer with one public key."""
    key = TokenKey(kid, public_pem(algorithm, number))
    return TokenIssuer(name, TokenAlgorithm(algorithm), (key,), **more)


def sharing(pepper: bytes, name: str = "shared", secret: bytes = SECRET, **more: Any) -> TokenIssuer:
    """An issuer that shares a secret."""
    return TokenIssuer(name, TokenAlgorithm.HS256, (TokenKey("", seal(secret, pepper)),), **more)


def part(content: object) -> str:
    """One part of a token: JSON, or octets as they are."""
    octets = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def signed(header: object, payload: object, algorithm: str, key: Any) -> bytes:
    """A token whose header says what it says, signed as `algorithm` does."""
    text = f"{part(header)}.{part(payload)}"
    return f"{text}.{part(get_default_algorithms()[algorithm].sign(text.encode(), key))}".encode()


def token(
    algorithm: str = ES256, *, number: int = 0, kid: str | None = None, secret: bytes = SECRET, **claims: Any
) -> bytes:
    """A well-formed token. A claim that is None is left out."""
    header = {"alg": algorithm, "typ": "JWT"} | ({"kid": kid} if kid is not None else {})
    key = secret if algorithm == HS256 else private_key(algorithm, number)
    return signed(header, {name: value for name, value in claims.items() if value is not None}, algorithm, key)
