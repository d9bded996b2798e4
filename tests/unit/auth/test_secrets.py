"""Stored forms of credentials."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from iothub_services.auth.secrets import (
    generate_secret,
    hash_generated,
    hash_password,
    is_acceptable,
    is_generated,
    mac,
    verify_generated,
    verify_password,
)

PEPPER = bytes(range(32))


def test_generated_secret_has_at_least_128_bits_and_is_url_safe() -> None:
    """No escaping is ever needed in scripts or URLs."""
    secret = generate_secret()

    assert len(secret) >= 22
    assert secret.isascii()
    assert secret.replace("-", "").replace("_", "").isalnum()
    assert secret != generate_secret()


def test_generated_hash_proves_its_secret_alone() -> None:
    """Another secret, another pepper: no."""
    stored = hash_generated("secret", PEPPER)

    assert is_generated(stored)
    assert verify_generated(b"secret", stored, PEPPER)
    assert not verify_generated(b"Secret", stored, PEPPER)
    assert not verify_generated(b"secret", stored, PEPPER[::-1])


def test_generated_hash_is_salted() -> None:
    """Equal secrets do not look equal in the database."""
    assert hash_generated("secret", PEPPER) != hash_generated("secret", PEPPER)


@pytest.mark.parametrize("stored", ["", "h1$", "h1$a", "h1$a$b$c", "h2$YWE$YWE", "h1$!!$YWE", "h1$YWE$\u00e9", "plain"])
def test_damaged_hash_proves_nothing(stored: str) -> None:
    """A garbled row refuses; it never raises and never lets in."""
    assert not verify_generated(b"", stored, PEPPER)
    assert not verify_password(b"", stored)


@pytest.mark.parametrize("size", [0, 15])
def test_short_pepper_is_refused(size: int) -> None:
    """A missing key must not become an empty one."""
    with pytest.raises(ValueError, match="pepper"):
        hash_generated("secret", bytes(size))


@pytest.mark.parametrize("size", [16, 17, 63, 64, 65, 200])
def test_mac_is_the_one_of_the_standard_library(size: int) -> None:
    """HMAC-SHA256 for keys below, at and above the block of the hash."""
    key = bytes(range(size))

    assert mac(b"text", key) == hmac.digest(key, b"text", hashlib.sha256)


def test_generated_hash_has_one_spelling() -> None:
    """What is not base64 to the letter is damage, even where a lenient reader would pass over it."""
    version, salt, proof = hash_generated("secret", PEPPER).split("$")

    assert len(base64.urlsafe_b64decode(salt + "==")) == 16
    assert not verify_generated(b"secret", f"{version}${salt}!${proof}", PEPPER)
    assert not verify_generated(b"secret", f"{version}${salt}${proof}!", PEPPER)


def test_password_hash_is_argon2id_and_proves_its_password_alone() -> None:
    """The form is the standard encoding, so other tools can make it."""
    stored = hash_password("correct horse")

    assert stored.startswith("$argon2id$")
    assert not is_generated(stored)
    assert verify_password(b"correct horse", stored)
    assert not verify_password(b"correct house", stored)
    assert not verify_password(b"correct horse", "$argon2id$v=19$nonsense")


def test_absent_empty_and_oversized_secrets_are_not_looked_at() -> None:
    """Absent is not empty, and neither proves anything (CVE-2016-9877)."""
    assert not is_acceptable(None)
    assert not is_acceptable(b"")
    assert not is_acceptable(b"x" * 1025)
    assert is_acceptable(b"x" * 1024)
    assert is_acceptable(b"x")
