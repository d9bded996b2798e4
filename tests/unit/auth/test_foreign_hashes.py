"""Hashes of Mosquitto and EMQX prove the passwords they were made of, and nothing else."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub_services.auth import secrets
from iothub_services.auth.foreign_hashes import emqx_hash, mosquitto_hash, verify_foreign
from iothub_services.auth.secrets import hash_generated, hash_password, is_password_hash, verify_password
from tests.support.foreign_hashes import EMQX, EMQX_SALT, PBKDF2, SHA512


@pytest.mark.parametrize(("stored", "password"), [(PBKDF2, "secret"), (SHA512, "p\u00e4ssword")])
def test_hash_of_mosquitto_proves_its_password_alone(stored: str, password: str) -> None:
    """As the command wrote it; another password, another salt: no."""
    assert mosquitto_hash(f" {stored}\n") == stored
    assert verify_password(password, stored)
    assert not verify_password(password + "x", stored)
    assert not verify_password(password, stored.replace("$", "$0", 3).replace("$0", "$", 2))


def test_argon2_of_mosquitto_is_taken_as_our_own() -> None:
    """The form is the standard encoding."""
    stored = hash_password("secret")

    assert mosquitto_hash(stored) == stored


def test_hash_of_a_password_is_ours_or_one_of_another_broker() -> None:
    """A generated secret's is none, nor is what cannot be read."""
    assert all(is_password_hash(stored) for stored in (hash_password("secret"), PBKDF2, SHA512))
    assert not any(is_password_hash(stored) for stored in ("secret", "$6$", hash_generated("secret", bytes(32))))


ARGON2 = "$argon2id$v=19$m={},t={},p={}$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNo"


@pytest.mark.parametrize(
    "stored",
    [
        ARGON2.format(262_145, 1, 1),
        ARGON2.format(262_144, 3, 1),
        ARGON2.format(64, 4_294_967_295, 1),
        ARGON2.format(4_194_304, 1, 1),
        ARGON2.format(47_104, 1, 17),
        ARGON2.format("9" * 5000, 1, 1),
        ARGON2.format("\u0661", 1, 1),
        "$argon2id$",
        "$argon2id$v=19$nonsense",
        ARGON2.format(47_104, 1, 1) + "$",
    ],
)
def test_argon2_that_takes_more_than_a_login_may_is_refused_and_never_computed(
    stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file cannot take the hub's memory, nor a thread for hours; what is in the store already proves nothing."""

    class Untouched:
        def verify(self, _stored: str, _password: bytes) -> bool:
            raise AssertionError("computed")

    monkeypatch.setattr(secrets, "_ARGON2", Untouched())

    with pytest.raises(ConfigError, match="argon2id hash is damaged, or takes more than 256 MiB"):
        mosquitto_hash(stored)
    assert not verify_password("secret", stored)


@pytest.mark.parametrize("stored", [ARGON2.format(262_144, 2, 16), ARGON2.format(47_104, 1, 1)])
def test_argon2_within_the_limits_is_taken(stored: str) -> None:
    assert mosquitto_hash(stored) == stored


def test_import_reads_a_hash_without_computing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million iterations for each of ten thousand devices would be hours."""

    def computed(*_: object) -> bytes:
        raise AssertionError("computed")

    monkeypatch.setattr("hashlib.pbkdf2_hmac", computed)
    stored = PBKDF2.replace("$101$", "$1000000$")

    assert mosquitto_hash(stored) == stored


def test_hash_of_emqx_proves_its_password_alone() -> None:
    """The salt stands before the password, or behind it."""
    before, behind = emqx_hash(EMQX.upper(), EMQX_SALT, "prefix"), emqx_hash(EMQX, EMQX_SALT, "suffix")

    assert verify_password("mypassword3", before)
    assert not verify_password("mypassword4", before)
    assert not verify_password("mypassword3", behind)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "$5$a$b",
        "$6$",
        "$6$UA95$",
        "$6$$Laf6",
        "$6$UA95wNOuhzZjBIQx$Laf6",
        "$6$!!$" + SHA512.split("$")[3],
        "$7$0$" + PBKDF2.split("$", 3)[3],
        "$7$-1$" + PBKDF2.split("$", 3)[3],
        "$7$1000001$" + PBKDF2.split("$", 3)[3],
        "$7$" + "9" * 5000 + "$" + PBKDF2.split("$", 3)[3],
        "$7$\u0661$" + PBKDF2.split("$", 3)[3],
    ],
)
def test_what_is_no_hash_of_mosquitto_is_refused_and_proves_nothing(text: str) -> None:
    """A plain password is never taken for a hash; a number of iterations cannot hold a thread for hours."""
    with pytest.raises(ConfigError):
        mosquitto_hash(text)
    assert not verify_foreign(b"", text)


@pytest.mark.parametrize(
    ("digest", "salt"),
    [
        ("", ""),
        ("ab" * 16, "s"),
        ("$2b$10$abc", "s"),
        ("zz" * 32, "s"),
        (EMQX, "a$b"),
        (EMQX, "a" * 129),
        (EMQX, "a b"),
        (EMQX, "\u00e4"),
    ],
)
def test_what_is_no_hash_of_emqx_is_refused(digest: str, salt: str) -> None:
    """MD5 and SHA-1 are not taken over."""
    with pytest.raises(ConfigError):
        emqx_hash(digest, salt, "prefix")
