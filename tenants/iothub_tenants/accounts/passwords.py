"""Passwords of users: which may be chosen, how one is generated, hashed and proven.

Knows no user and no store. As NIST SP 800-63B has it: a password must be long and no obvious one; of which characters it is, is nobody's business.
Hashing and proving take tens of milliseconds, two at a time in a process; the others wait.
"""

from __future__ import annotations

import secrets
import unicodedata
from functools import cache
from threading import BoundedSemaphore

from iothub.base.errors import ConfigError
from iothub_services.auth.secrets import hash_password, verify_password

LEAST = 12  # characters
MOST_BYTES = 1024
_GENERATED_BYTES = 15  # 120 bits: 20 characters
_LEAST_DIFFERENT = 5  # characters of "121212121212" are two
_TURN = BoundedSemaphore(2)  # hashes at a time: each takes a core and 9 MiB
_RUNS = ("abcdefghijklmnopqrstuvwxyz", "01234567890123456789", "qwertyuiopasdfghjklzxcvbnm", "1qaz2wsx3edc4rfv5tgb")
_OBVIOUS = ("password", "passwort", "letmein", "iloveyou", "changeme", "administrator", "welcome", "iothub", "secret")


def generate() -> str:
    """Return a new password for a person to copy."""
    return secrets.token_urlsafe(_GENERATED_BYTES)


def check(name: str, password: str) -> None:
    """Raise ConfigError unless the user `name` may choose this password."""
    if len(_normal(password)) < LEAST:
        raise ConfigError(f"the password is too short: expected at least {LEAST} characters")
    if len(_octets(password)) > MOST_BYTES:
        raise ConfigError(f"the password is too long: expected at most {MOST_BYTES} bytes")
    if _is_obvious(name.casefold(), _normal(password).casefold()):
        raise ConfigError(
            "the password is one of the first that anybody would try: choose another, or let one be generated"
        )


def hashed(password: str) -> str:
    """Return what is stored."""
    with _TURN:
        return hash_password(_octets(password))


def is_right(password: str, stored: str | None) -> bool:
    """Say whether `stored` was made of `password`. None, for a user that does not exist, takes the same time."""
    octets = _octets(password)
    if len(octets) > MOST_BYTES:
        return False
    with _TURN:
        return verify_password(octets, stored or _nobodys()) and bool(stored)


@cache
def _nobodys() -> str:
    return hash_password(secrets.token_bytes(16))


def _octets(password: str) -> bytes:
    """One password is one text, however a keyboard composes its letters. What is no text at all is nobody's password."""
    return _normal(password).encode("utf-8", "surrogatepass")


def _normal(password: str) -> str:
    return unicodedata.normalize("NFKC", password)


def _is_obvious(name: str, password: str) -> bool:
    if len(set(password)) < _LEAST_DIFFERENT or any(password in run or password in run[::-1] for run in _RUNS):
        return True
    letters = _letters(password)
    words = [word for word in (*_OBVIOUS, _letters(name)) if word]
    return any(letters == word * (len(letters) // len(word)) for word in words if letters)


def _letters(text: str) -> str:
    return "".join(mark for mark in text if mark.isalpha())
