"""Credentials as text: how a generated secret and a chosen password are stored and proven.

Knows no device, no store and no pool: pure functions over bytes. Checking a generated secret takes microseconds and may
run anywhere; a chosen password takes tens of milliseconds and belongs in a thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
from functools import lru_cache

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from iothub_services.auth.foreign_hashes import is_bounded_argon2, is_foreign, is_readable_foreign, verify_foreign

SECRET_BYTES = 24  # 192 bit: nothing to guess, so a fast keyed hash is enough
MAX_SECRET_BYTES = 1024  # a longer one is refused unread: anybody can make the hub hash it

_GENERATED = "h1$"  # version of the stored form: salted HMAC-SHA256 under the server's pepper
_GENERATED_HASH = re.compile(r"h1\$[-\w]{22}\$[-\w]{43}", re.ASCII)  # a salt of 16 bytes, a MAC of 32
_SALT_BYTES = 16
_MIN_PEPPER_BYTES = 16
_STANDARD = bytes.maketrans(b"-_+/", b"+/!!")  # from the URL-safe alphabet; a sign of the other one is none of this
_BLOCK_BYTES = 64  # of SHA-256
# One of the parameter sets that OWASP names as equal in strength: 33 ms on a small cloud machine, the bound is 60 ms.
_ARGON2 = PasswordHasher(time_cost=4, memory_cost=9 * 1024, parallelism=1, type=Type.ID)


def generate_secret() -> str:
    """Return a new secret: 192 random bits as 32 URL-safe characters."""
    return secrets.token_urlsafe(SECRET_BYTES)


def hash_generated(secret: str | bytes, pepper: bytes) -> str:
    """Return the stored form of a generated secret: version, salt, HMAC-SHA256.

    The salt has a fixed length, so (salt, secret) cannot be read in two ways.
    """
    salt = os.urandom(_SALT_BYTES)
    return f"{_GENERATED}{_encode(salt)}${_encode(mac(salt + _octets(secret), pepper))}"


def verify_generated(secret: str | bytes, stored: str, pepper: bytes) -> bool:
    """Say whether `stored` was made of `secret`, in constant time. False for any other stored form."""
    if not stored.startswith(_GENERATED):
        return False
    try:
        _, salt_text, mac_text = stored.encode().translate(_STANDARD).split(b"$")
        salt = binascii.a2b_base64(salt_text + b"==", strict_mode=True)  # 16 octets
        stored_mac = binascii.a2b_base64(mac_text + b"=", strict_mode=True)  # 32
    except ValueError:
        return False
    return hmac.compare_digest(mac(salt + _octets(secret), pepper), stored_mac)


def is_generated(stored: str) -> bool:
    """Say whether a stored credential is a generated secret's (checked at once), not a password's (in a thread)."""
    return stored.startswith(_GENERATED)


def is_generated_hash(stored: str) -> bool:
    """Say whether this is the whole stored form of a generated secret; a damaged one would be nobody's for ever."""
    return _GENERATED_HASH.fullmatch(stored) is not None


def hash_password(password: str | bytes) -> str:
    """Return the stored form of a chosen password: argon2id. Takes tens of milliseconds."""
    return _ARGON2.hash(_octets(password))


def verify_password(password: str | bytes, stored: str) -> bool:
    """Say whether `stored` was made of `password`, by us or by the broker it was imported from.

    False for any other stored form, and for a hash that takes more than one login may: a file that was imported chose its parameters.
    """
    if is_foreign(stored):
        return verify_foreign(_octets(password), stored)
    if not is_bounded_argon2(stored):
        return False
    try:
        return _ARGON2.verify(stored, _octets(password))
    except (VerificationError, InvalidHashError):
        return False


def is_password_hash(stored: str) -> bool:
    """Say whether this is the stored form of a chosen password, and its check takes no more than one login may."""
    return is_bounded_argon2(stored) or is_readable_foreign(stored)


def is_acceptable(secret: bytes | None) -> bool:
    """Say whether a presented secret is worth a check: it is there, not empty and not oversized."""
    return secret is not None and 0 < len(secret) <= MAX_SECRET_BYTES


def mac(octets: bytes, key: bytes) -> bytes:
    """HMAC-SHA256 (RFC 2104) with the padded key hashed once: a third of the time of `hmac.digest`, and without its switch of threads."""
    inner, outer = _keyed(key)
    inner, outer = inner.copy(), outer.copy()
    inner.update(octets)
    outer.update(inner.digest())
    return outer.digest()


@lru_cache(maxsize=4)  # a process has one pepper, a key that is made of it, and one of its password checks
def _keyed(pepper: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    if len(pepper) < _MIN_PEPPER_BYTES:
        raise ValueError(f"the pepper has {len(pepper)} bytes, expected at least {_MIN_PEPPER_BYTES}")
    key = (pepper if len(pepper) <= _BLOCK_BYTES else hashlib.sha256(pepper).digest()).ljust(_BLOCK_BYTES, b"\0")
    return hashlib.sha256(bytes(octet ^ 0x36 for octet in key)), hashlib.sha256(bytes(octet ^ 0x5C for octet in key))


def _octets(secret: str | bytes) -> bytes:
    return secret.encode() if isinstance(secret, str) else secret


def _encode(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")
