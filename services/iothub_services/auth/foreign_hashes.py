"""Hashes of passwords that other brokers made: their stored forms, read once at an import, and proven at each login.

Knows no device and no file. A hash stays as it is: nobody knows the password that would be needed for a better one. What made it chose what a
check costs, and anybody can ask for a check, so that has a limit.

Invariant: no check takes as long as a refusal waits for its answer (`check_pool.FAILED_REPLY_S`). Otherwise the time of a refusal would show which
devices there are. The limits allow about half of that wait.

| stored | made by |
| --- | --- |
| `$6$SALT$HASH` | mosquitto_passwd before 2.0: SHA-512 of password and salt, in base64 |
| `$7$ITERATIONS$SALT$HASH` | mosquitto_passwd of 2.0: PBKDF2 with HMAC-SHA-512, in base64 |
| `$emqx-sha256$PLACE$SALT$HASH`, `$emqx-sha512$...` | the built-in database of EMQX, in hexadecimal; PLACE of the salt: `prefix`, `suffix` |
| `$emqx-pbkdf2-sha256$ITERATIONS$SALT$HASH`, `$emqx-pbkdf2-sha512$...` | the same with PBKDF2, HMAC-SHA-256 or HMAC-SHA-512 |
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from collections.abc import Callable

from iothub.base.errors import ConfigError

MAX_ITERATIONS = 600_000  # of PBKDF2: about 0.25 s
MAX_WORK_KIB = 256 << 10  # of argon2, memory times passes: about 0.25 s
MAX_LANES = 16  # threads of one check
_MAX_SALT = 128
_MAX_HASH = 256
_MAX_NUMBER = 10  # characters
_MIN_DERIVED = 16  # bytes of a hash by PBKDF2
_DIGESTS = {64: "sha256", 128: "sha512"}  # by the characters of the hash
_DIGEST_BYTES = {"sha256": 32, "sha512": 64}
_UNSAFE = {32: "MD5", 40: "SHA-1"}
_SALT_TEXT = re.compile(rf"[A-Za-z0-9+/=_.-]{{0,{_MAX_SALT}}}")
_SHA512_BYTES = 64
_ARGON2ID = re.compile(
    r"\$argon2id\$(?:v=\d{2}\$)?m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]{11,128}\$[A-Za-z0-9+/]{6,256}",
    re.ASCII,
)

_Made = Callable[[bytes], bytes]
"""Makes the hash of a password."""


def is_foreign(stored: str) -> bool:
    """Say whether a stored credential has the form of another broker's hash."""
    return stored.startswith(("$6$", "$7$", "$emqx-"))


def is_readable_foreign(stored: str) -> bool:
    """Say whether it is a whole hash of another broker, whose check takes no longer than one login may."""
    try:
        _read(stored)
    except ValueError:
        return False
    return True


class _CostlyError(ValueError):
    """The hash is whole, and its check would take too long."""


def verify_foreign(password: bytes, stored: str) -> bool:
    """Say whether `stored` was made of `password`, in constant time. False for any other stored form. Up to about 0.25 s of work."""
    try:
        made, expected = _read(stored)
    except ValueError:
        return False
    return hmac.compare_digest(made(password), expected)


def is_bounded_argon2(stored: str) -> bool:
    """Say whether this is a whole hash by argon2id whose check takes no more memory and time than one login may."""
    found = _ARGON2ID.fullmatch(stored)
    if found is None:
        return False
    memory_kib, passes, lanes = map(int, found.groups())
    return memory_kib * passes <= MAX_WORK_KIB and lanes <= MAX_LANES


def mosquitto_hash(text: str) -> str:
    """Return the stored form of what stands behind the colon in a password file of Mosquitto, without blanks. Raises ConfigError."""
    stored = text.strip()
    if stored.startswith("$argon2id$"):  # of Mosquitto 2.1, and the form of ours
        if not is_bounded_argon2(stored):
            raise ConfigError(
                f"the argon2id hash is damaged, or takes more than {MAX_WORK_KIB >> 10} MiB in all passes or {MAX_LANES} lanes: "
                "give the device a new password"
            )
        return stored
    if not stored.startswith(("$6$", "$7$")):
        raise ConfigError(
            "not a hash of mosquitto_passwd ($6$, $7$ or $argon2id$): run mosquitto_passwd -U on the file"
        )
    _require_readable(stored)
    return stored


def emqx_hash(digest: str, salt: str, salt_place: str) -> str:
    """Return the stored form of `password_hash` and `salt` of EMQX's built-in database. Raises ConfigError."""
    name = _DIGESTS.get(len(digest))
    if name is None:
        raise ConfigError(_why_no_digest(digest))
    return _emqx_form(f"{name}${salt_place}", salt, digest)


def emqx_pbkdf2_hash(digest: str, salt: str, mac: str, iterations: int) -> str:
    """Return the stored form of the same where the authenticator's algorithm is pbkdf2. `mac`: sha256 or sha512. Raises ConfigError."""
    return _emqx_form(f"pbkdf2-{mac}${iterations}", salt, digest)


# --- private


def _why_no_digest(digest: str) -> str:
    if digest.startswith("$2"):
        return "bcrypt cannot be checked here: give the device a new password"
    if unsafe := _UNSAFE.get(len(digest)):
        return f"{unsafe} is not safe and not taken over: give the device a new password (a hash by pbkdf2: name its settings with --pbkdf2)"
    return "not a SHA-256 or SHA-512 in hexadecimal (a hash by pbkdf2: name its settings with --pbkdf2)"


def _emqx_form(start: str, salt: str, digest: str) -> str:
    if not _SALT_TEXT.fullmatch(salt):
        raise ConfigError(
            f"the salt has more than {_MAX_SALT} characters, or others than A-Z, a-z, 0-9 and + / = _ . -"
        )
    stored = f"$emqx-{start}${salt}${digest.lower()}"
    _require_readable(stored)
    return stored


def _require_readable(stored: str) -> None:
    try:
        _read(stored)
    except _CostlyError as error:
        raise ConfigError(f"{error}: give the device a new password") from None
    except ValueError:
        raise ConfigError("the hash is damaged: salt, iterations or hash cannot be read") from None


def _read(stored: str) -> tuple[_Made, bytes]:
    """Return what makes a hash by the parameters of `stored`, and the hash in it. Raises ValueError."""
    match stored.split("$"):
        case ["", "6", salt, digest]:
            after = _base64(salt, _MAX_SALT)
            return lambda password: hashlib.sha512(password + after).digest(), _sha512(digest)
        case ["", "7", iterations, salt, digest]:
            own, count = _base64(salt, _MAX_SALT), _count(iterations)
            return lambda password: hashlib.pbkdf2_hmac("sha512", password, own, count), _sha512(digest)
        case ["", "emqx-sha256" | "emqx-sha512" as form, ("prefix" | "suffix") as place, salt, digest]:
            name = form.removeprefix("emqx-")
            before, behind = (salt.encode(), b"") if place == "prefix" else (b"", salt.encode())
            return lambda password: hashlib.new(name, before + password + behind).digest(), binascii.unhexlify(digest)
        case ["", "emqx-pbkdf2-sha256" | "emqx-pbkdf2-sha512" as form, iterations, salt, digest]:
            mac, count, derived = form.removeprefix("emqx-pbkdf2-"), _count(iterations), binascii.unhexlify(digest)
            if not _MIN_DERIVED <= len(derived) <= _DIGEST_BYTES[mac]:
                raise ValueError("too short, or longer than a hash of this kind")
            return lambda password: hashlib.pbkdf2_hmac(mac, password, salt.encode(), count, len(derived)), derived
    raise ValueError("no foreign hash")


def _base64(text: str, limit: int) -> bytes:
    if not 1 <= len(text) <= limit:
        raise ValueError("empty or too long")
    return binascii.a2b_base64(text.encode(), strict_mode=True)


def _sha512(text: str) -> bytes:
    digest = _base64(text, _MAX_HASH)
    if len(digest) != _SHA512_BYTES:
        raise ValueError("not as long as a SHA-512")
    return digest


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_NUMBER and int(text)):
        raise ValueError("no number of iterations")
    if int(text) > MAX_ITERATIONS:
        raise _CostlyError(f"a check takes {text} iterations, and at most {MAX_ITERATIONS} are allowed")
    return int(text)
