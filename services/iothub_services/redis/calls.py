"""Commands for Redis as values: what is sent, what comes back, and scripts that are known by their digest.

Knows no connection and no key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from iothub.base.errors import BackendError
from iothub.base.values import value
from iothub_services.probing import Advice

Argument: TypeAlias = "bytes | str | int | float"
Reply: TypeAlias = "bytes | int | list[Reply] | BackendError | None"
"""As Redis says it: nothing is decoded. An error inside of an answer (of EXEC) stands at its place."""

ADVICE = Advice("redis.addresses and the rest of [redis]", "docs/guide/redis.md#the-hub-does-not-reach-redis")

_OVERHEAD_BYTES = 16  # of one argument, roughly


class RedisUnavailableError(BackendError):
    """Redis did not answer, or cannot do it now; the same call may succeed later. `is_written` is False only if it was certainly not done."""

    def __init__(self, message: str, *, is_written: bool = False, remedy: str = "") -> None:
        super().__init__(message, retryable=True, is_written=is_written, remedy=remedy)


class RedisRefusedError(BackendError):
    """Redis does not do this call, however often it is repeated: a defect of ours, or a right that the user lacks."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script. It touches only the keys that it is given, all with the same hash tag."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


@value
class Call:
    """One command. `script`: what EVALSHA names, to be sent where the server does not know it."""

    arguments: tuple[Argument, ...]
    script: Script | None = None

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        texts = sum(len(argument) for argument in self.arguments if isinstance(argument, bytes | str))
        return texts + _OVERHEAD_BYTES * len(self.arguments)

    def spelled_out(self) -> Call:
        """Return the call of a script with its whole text, which the server keeps from then on."""
        if self.script is None:
            return self
        return Call(("EVAL", self.script.text, *self.arguments[2:]))


class PackedCall(Call):
    """The call of a script as it goes over the wire: `octets`. Whoever makes thousands of them a second makes these."""

    __slots__ = ("octets",)

    def __init__(self, script: Script, octets: bytes) -> None:
        self.script = script  # type: ignore[misc]  # made here
        self.octets = octets

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What the bytes say. Slow: for a call that is spelled out, and for tests."""
        _, *parts = self.octets.split(b"\r\n", 1)
        found: list[Argument] = []
        rest = parts[0]
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            end = int(size[1:])
            found.append(rest[:end])
            rest = rest[end + 2 :]
        return ("EVALSHA", *found[1:])

    @property
    def size(self) -> int:
        return len(self.octets)


def packed(argument: bytes) -> bytes:
    """Return an argument as it goes over the wire."""
    return b"$%d\r\n%b\r\n" % (len(argument), argument)


def packed_start(script: Script, arguments: int) -> bytes:
    """Return the beginning of a script's call, over the wire. So many keys and arguments follow, behind the number of keys."""
    words = 3  # EVALSHA, digest, number of keys
    return b"*%d\r\n" % (words + arguments) + packed(b"EVALSHA") + packed(script.digest.encode())


def command(*arguments: Argument) -> Call:
    return Call(arguments)


def script_call(script: Script, keys: Sequence[bytes | str], *arguments: Argument) -> Call:
    """Call a script with KEYS and ARGV."""
    return Call(("EVALSHA", script.digest, len(keys), *keys, *arguments), script)


def single(outcome: Reply) -> Reply:
    """Return the answer to one call. Raises BackendError when it is one."""
    if isinstance(outcome, BackendError):
        raise outcome
    return outcome
