"""Keys that verify tokens (JWT): read from what people provide, checked, encrypted if they are secret, and made ready for use.

Knows no token and no store. A key is of exactly one algorithm: what is read here for one is never used for another.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jwt.algorithms import Algorithm, ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import InvalidKeyError

from iothub.base.errors import ConfigError
from iothub_services.auth.port import TokenAlgorithm, TokenKey

PublicKey: TypeAlias = EllipticCurvePublicKey | RSAPublicKey | Ed25519PublicKey

KEY_ID_LIMIT = 256  # characters of a `kid`
MIN_SECRET_BYTES = 32  # of HS256: a secret shorter than the hash is the weakest part (RFC 7518 §3.2)
RSA_BITS = (2048, 8192)  # below: breakable; above: a check costs too much
_RSA_EXPONENT_BITS = 32  # a larger one makes every check slow, and no real key has one
_PEM_SIGN = "-----BEGIN"
_SEALED = "s1$"  # version of the sealed form: AES-256-GCM under a key that is derived from the pepper
_SEALED_LIMIT = 8192  # characters
_SEAL_INFO = b"iothub token issuer secret"
_NONCE_BYTES = 12
_SUPPORTED: dict[tuple[str, str], type[Algorithm]] = {  # by kty and crv
    ("EC", "P-256"): ECAlgorithm,
    ("RSA", ""): RSAAlgorithm,
    ("OKP", "Ed25519"): OKPAlgorithm,
}


def read_public_key(text: str, algorithm: TokenAlgorithm | None = None) -> tuple[TokenAlgorithm, TokenKey]:
    """Read a public key in PEM; its type says the algorithm, which must be `algorithm` if one is given. Raises ConfigError."""
    if "PRIVATE KEY" in text:
        raise ConfigError(
            "this is a private key, which stays with the issuer: give its public part (`openssl pkey -pubout`)"
        )
    if "BEGIN CERTIFICATE" in text:
        raise ConfigError("this is a certificate: give its public key (`openssl x509 -pubkey -noout`)")
    try:
        key = serialization.load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError("not a public key in PEM: expected -----BEGIN PUBLIC KEY-----") from None
    found = algorithm_of(key)
    if algorithm is not None and algorithm is not found:
        raise ConfigError(
            f"the key is one for {found.value}, not for {algorithm.value}: leave --algorithm out, or give the other key"
        )
    return found, TokenKey("", _pem(key))


def read_jwks(document: object, algorithm: TokenAlgorithm | None = None) -> tuple[TokenAlgorithm, tuple[TokenKey, ...]]:
    """Read a JSON Web Key Set, or a single key. Keys that are not for signatures, or for other algorithms than the one, are left out.

    Raises:
        ConfigError: nothing of it fits, it fits several algorithms and none is given, or it holds private or secret keys.
    """
    found: dict[TokenAlgorithm, list[TokenKey]] = {}
    for place, jwk in enumerate(_keys_of(document)):
        read = _read_jwk(jwk, f"keys[{place}]")
        if read is not None:
            found.setdefault(read[0], []).append(read[1])
    if algorithm is None and len(found) > 1:
        words = ", ".join(sorted(each.value for each in found))
        raise ConfigError(
            f"the set has keys for several algorithms ({words}): say with --algorithm which one the issuer signs with"
        )
    chosen = algorithm or next(iter(found), None)
    keys = tuple(found.get(chosen, ())) if chosen is not None else ()
    if chosen is None or not keys:
        wanted = algorithm.value if algorithm is not None else "ES256, RS256 or EdDSA"
        raise ConfigError(f"the set has no public key to verify {wanted} with")
    ids = [key.id for key in keys]
    if len(set(ids)) < len(ids):
        raise ConfigError("two keys of the set have the same kid (or both have none): name each one")
    return chosen, keys


def read_shared_secret(secret: str, pepper: bytes) -> TokenKey:
    """Read a secret for HS256 and seal it. Raises ConfigError."""
    octets = secret.encode()
    if _PEM_SIGN in secret or secret.startswith(("ssh-", "{")):
        raise ConfigError("this is a public or private key, not a shared secret: use --public-key-file or --jwks-file")
    if len(octets) < MIN_SECRET_BYTES:
        raise ConfigError(
            f"the secret has {len(octets)} bytes, HS256 needs at least {MIN_SECRET_BYTES}: `openssl rand -base64 48`"
        )
    return TokenKey("", seal(octets, pepper))


def algorithm_of(key: object) -> TokenAlgorithm:
    """Say which algorithm a public key is for. Raises ConfigError: for none that we take, or it is weak."""
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return TokenAlgorithm.ES256
    if isinstance(key, Ed25519PublicKey):
        return TokenAlgorithm.EDDSA
    if isinstance(key, RSAPublicKey):
        low, high = RSA_BITS
        if not low <= key.key_size <= high or key.public_numbers().e.bit_length() > _RSA_EXPONENT_BITS:
            raise ConfigError(
                f"the RSA key has {key.key_size} bits, exponent {key.public_numbers().e}: expected {low} to {high} bits, exponent 65537"
            )
        return TokenAlgorithm.RS256
    raise ConfigError("a key of this type is not supported: expected EC P-256 (ES256), RSA (RS256) or Ed25519 (EdDSA)")


def check_stored(algorithm: TokenAlgorithm, key: TokenKey) -> None:
    """Raise ConfigError unless this can be a stored key of `algorithm`; whether a sealed secret opens is not looked at."""
    _check_id(key.id)
    if algorithm is TokenAlgorithm.HS256:
        if not key.material.startswith(_SEALED) or len(key.material) > _SEALED_LIMIT:
            raise ConfigError("expected a sealed secret")
    elif read_public_key(key.material, algorithm)[1].material != key.material:
        raise ConfigError("expected a public key in PEM, and nothing else")


@lru_cache(maxsize=1024)
def ready_key(algorithm: TokenAlgorithm, material: str, pepper: bytes) -> PublicKey | bytes | None:
    """Return a stored key, ready to verify with; None if it cannot be one of this algorithm: damaged, or sealed elsewhere."""
    if algorithm is TokenAlgorithm.HS256:
        return unseal(material, pepper)
    try:
        key = serialization.load_pem_public_key(material.encode())
        is_its = algorithm_of(key) is algorithm
    except (ValueError, UnsupportedAlgorithm, ConfigError):
        return None
    return key if is_its and isinstance(key, EllipticCurvePublicKey | RSAPublicKey | Ed25519PublicKey) else None


def seal(secret: bytes, pepper: bytes) -> str:
    """Encrypt a secret so that only a server with this pepper reads it. Raises ConfigError without a pepper."""
    if not pepper:
        raise ConfigError("a secret cannot be stored without the server's pepper: open the store with the pepper")
    nonce = os.urandom(_NONCE_BYTES)
    sealed = AESGCM(_sealing_key(pepper)).encrypt(nonce, secret, _SEAL_INFO)
    return _SEALED + base64.b64encode(nonce + sealed).decode()


def unseal(sealed: str, pepper: bytes) -> bytes | None:
    """Return the secret; None if it was sealed with another pepper, or is damaged."""
    if not sealed.startswith(_SEALED) or not pepper:
        return None
    try:
        octets = base64.b64decode(sealed.removeprefix(_SEALED), validate=True)
        secret = AESGCM(_sealing_key(pepper)).decrypt(octets[:_NONCE_BYTES], octets[_NONCE_BYTES:], _SEAL_INFO)
    except (binascii.Error, ValueError, InvalidTag):
        return None
    return secret if len(secret) >= MIN_SECRET_BYTES else None


@lru_cache(maxsize=4)  # a process has one pepper
def _sealing_key(pepper: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_SEAL_INFO).derive(pepper)


def _keys_of(document: object) -> list[object]:
    if isinstance(document, Mapping) and isinstance(document.get("keys"), list):
        keys: list[object] = document["keys"]
        return keys
    if isinstance(document, Mapping) and "kty" in document:
        return [document]
    raise ConfigError('not a JSON Web Key Set: expected {"keys": [...]}')


def _read_jwk(jwk: object, where: str) -> tuple[TokenAlgorithm, TokenKey] | None:
    """Read one key; None if it is not one to verify our algorithms with. Raises ConfigError: it should not be here, or is damaged."""
    if not isinstance(jwk, Mapping):
        raise ConfigError(f"{where}: expected an object")
    if jwk.get("kty") == "oct":
        raise ConfigError(f"{where}: a shared secret does not belong into a key set: use --secret-stdin")
    if "d" in jwk:
        raise ConfigError(f"{where}: this is a private key, which stays with the issuer: give the public part only")
    key_id, use, named = jwk.get("kid", ""), jwk.get("use", "sig"), jwk.get("alg")
    reader = _SUPPORTED.get((str(jwk.get("kty")), str(jwk.get("crv", ""))))
    if reader is None or use != "sig" or named not in (None, *(each.value for each in TokenAlgorithm)):
        return None
    try:
        _check_id(key_id)
        key = reader.from_jwk(json.dumps(dict(jwk)))
        algorithm = algorithm_of(key)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except (InvalidKeyError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        raise ConfigError(f"{where}: the key is damaged") from None
    if named not in (None, algorithm.value):
        raise ConfigError(f"{where}: alg is {named}, but the key is one for {algorithm.value}")
    return algorithm, TokenKey(str(key_id), _pem(key))


def _check_id(key_id: object) -> None:
    if not isinstance(key_id, str) or len(key_id) > KEY_ID_LIMIT or not key_id.isprintable():
        raise ConfigError(f"the kid is not a text of up to {KEY_ID_LIMIT} printable characters")


def _pem(key: object) -> str:
    assert isinstance(key, EllipticCurvePublicKey | RSAPublicKey | Ed25519PublicKey)  # noqa: S101  `algorithm_of` has looked
    octets = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return octets.decode()
