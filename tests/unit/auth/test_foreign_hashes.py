"""Hashes of Mosquitto and EMQX prove the passwords they were made of, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from iothub.base.errors import ConfigError
from iothub_services.auth import secrets
from iothub_services.auth.foreign_hashes import emqx_hash, emqx_pbkdf2_hash, mosquitto_hash, verify_foreign
from iothub_services.auth.secrets import hash_generated, hash_password, is_password_hash, verify_password
from tests.support.foreign_hashes import EMQX, EMQX_PBKDF2, EMQX_SALT, PBKDF2, SHA512


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
        ARGON2.format(65_537, 4, 1),
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

    with pytest.raises(
        ConfigError, match="argon2id hash is damaged, or takes more than 256 MiB in all passes or 16 lanes"
    ):
        mosquitto_hash(stored)
    assert not verify_password("secret", stored)


@pytest.mark.parametrize(
    "stored", [ARGON2.format(262_144, 1, 16), ARGON2.format(65_536, 3, 4), ARGON2.format(47_104, 1, 1)]
)
def test_argon2_within_the_limits_is_taken(stored: str) -> None:
    assert mosquitto_hash(stored) == stored


def test_import_reads_a_hash_without_computing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All iterations for each of ten thousand devices would be minutes."""

    def computed(*_: object) -> bytes:
        raise AssertionError("computed")

    monkeypatch.setattr("hashlib.pbkdf2_hmac", computed)
    stored = PBKDF2.replace("$101$", "$600000$")

    assert mosquitto_hash(stored) == stored


def test_hash_of_emqx_proves_its_password_alone() -> None:
    """The salt stands before the password, or behind it."""
    before, behind = emqx_hash(EMQX.upper(), EMQX_SALT, "prefix"), emqx_hash(EMQX, EMQX_SALT, "suffix")

    assert verify_password("mypassword3", before)
    assert not verify_password("mypassword4", before)
    assert not verify_password("mypassword3", behind)


@pytest.mark.parametrize("mac", ["sha256", "sha512"])
def test_pbkdf2_hash_of_emqx_proves_its_password_alone(mac: str) -> None:
    """By the settings of its authenticator; the salt is the text of the file, and what is derived may be shorter than the digest."""
    digest = hashlib.pbkdf2_hmac(mac, b"mypassword3", EMQX_SALT.encode(), 7, 20).hex()
    stored, other = (emqx_pbkdf2_hash(digest.upper(), EMQX_SALT, mac, iterations) for iterations in (7, 8))

    assert verify_password("mypassword3", stored)
    assert not verify_password("mypassword4", stored)
    assert not verify_password("mypassword3", other)


def test_pbkdf2_hash_of_emqx_is_the_standard_one() -> None:
    stored = emqx_pbkdf2_hash(EMQX_PBKDF2, "salt", "sha256", 1)

    assert stored == f"$emqx-pbkdf2-sha256$1$salt${EMQX_PBKDF2}"
    assert verify_password("passwd", stored)


@pytest.mark.parametrize("digest", ["", "ab" * 15, "ab" * 33, "zz" * 32])
def test_what_is_no_pbkdf2_hash_of_emqx_is_refused(digest: str) -> None:
    """What is longer than the digest takes the work twice."""
    with pytest.raises(ConfigError, match="the hash is damaged"):
        emqx_pbkdf2_hash(digest, "salt", "sha256", 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda: mosquitto_hash(PBKDF2.replace("$101$", "$600001$")),
        lambda: emqx_pbkdf2_hash(EMQX_PBKDF2, "salt", "sha256", 600_001),
    ],
)
def test_check_that_takes_longer_than_a_refusal_waits_is_refused_by_its_iterations(read: Callable[[], str]) -> None:
    """The time of a refusal must not show that a device exists."""
    with pytest.raises(ConfigError, match="takes 600001 iterations, and at most 600000 are allowed: give the device"):
        read()


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
        "$7$600001$" + PBKDF2.split("$", 3)[3],
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
    with pytest.raises(ConfigError):
        emqx_hash(digest, salt, "prefix")


@pytest.mark.parametrize(
    ("digest", "words"),
    [
        ("ab" * 16, "MD5 is not safe"),
        ("ab" * 20, "SHA-1 is not safe"),
        ("$2b$10$" + "a" * 53, "bcrypt cannot be checked here"),
        ("secret", "name its settings with --pbkdf2"),
    ],
)
def test_refusal_of_another_algorithm_of_emqx_names_it(digest: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        emqx_hash(digest, "salt", "prefix")
