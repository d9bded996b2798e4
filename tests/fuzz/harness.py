"""A small fuzzing loop that every harness shares: seeds, mutations, crashers kept as files.

Knows no format. A harness module has `target(data)`, which raises on a broken invariant, and `SEEDS`.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

LARGEST_BYTES = 64 << 10
CRASHERS = Path(__file__).parent / "crashers"
INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFF, 0x0B, 0x26, 0x10, 0x30, 0xC0)


class Harness(Protocol):
    """What a `fuzz_*.py` module offers."""

    SEEDS: Sequence[bytes]

    def target(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """`crasher` is the input that broke the invariant, with what was raised; `slowest_s` the longest single run."""

    runs: int
    slowest_s: float
    crasher: bytes | None = None
    error: BaseException | None = None


def mutate(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Take a seed, or two joined, and damage it in one to four ways."""
    data = bytearray(chance.choice(seeds))
    if chance.random() < 0.2:
        data += chance.choice(seeds)
    for _ in range(chance.randint(1, 4)):
        _damage(chance, data)
    return bytes(data[:LARGEST_BYTES])


def _damage(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data) + 1)
    match chance.randrange(6):
        case 0:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
        case 1:
            del data[at : at + chance.randint(1, 8)]
        case 2:
            data[at:at] = data[at : at + chance.randint(1, 64)] * chance.choice((1, 2, 50))
        case 3:
            data[at : at + 1] = bytes((chance.choice(INTERESTING),))
        case 4 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case _:
            data[at : at + 1] = bytes((chance.randrange(256),))


def fuzz(
    target: Callable[[bytes], None], seeds: Sequence[bytes], *, seed: int, runs: int = 0, seconds: float = 0.0
) -> Outcome:
    """Run the seeds, then mutations of them, `runs` times or for `seconds`."""
    chance = random.Random(seed)
    ends = time.monotonic() + seconds
    slowest_s = 0.0
    for number in count():
        if number >= runs + len(seeds) and (runs or time.monotonic() > ends):
            return Outcome(number, slowest_s)
        data = seeds[number] if number < len(seeds) else mutate(chance, seeds)
        started = time.perf_counter()
        try:
            target(data)
        except Exception as error:  # whatever a target raises is the finding
            return Outcome(number + 1, slowest_s, data, error)
        slowest_s = max(slowest_s, time.perf_counter() - started)
    raise AssertionError("count() does not end")


def keep_crasher(name: str, data: bytes) -> Path:
    """Store an input so that it is replayed for ever."""
    path = CRASHERS / name / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def crashers(name: str) -> list[bytes]:
    """Return the inputs that once broke this target."""
    return [path.read_bytes() for path in sorted((CRASHERS / name).glob("*.bin"))]
