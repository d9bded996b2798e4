"""A bounded cache of answers: the least recently used one is removed first, and every answer expires.

Knows no key, no value and no loader. Ages carry jitter, so that a fleet that connected at once is not looked up at once again.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from iothub.base.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Missing:
    """No answer is known; None is an answer ("there is no such device")."""


MISSING: Final = _Missing()
Missing = _Missing


@dataclass(frozen=True, slots=True)
class LruSettings:
    """Bounds of one cache. An age is shortened by up to `jitter` of itself."""

    entries: int = 50_000
    ttl_s: float = 60.0
    negative_ttl_s: float = 10.0  # for the answer None
    jitter: float = 0.2


class Lru(Generic[K, V]):
    """One cache; must be used on one thread.

    Invariants: never more than `entries`; never an answer older than its age. All operations are O(1).
    """

    def __init__(self, settings: LruSettings, clock: Clock, uniform: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._clock = clock
        self._uniform = uniform
        self._entries: OrderedDict[K, tuple[V | None, float]] = OrderedDict()  # in order of use, the least recent first
        self.hits = 0
        self.misses = 0

    def apply(self, settings: LruSettings) -> None:
        """Hold other bounds from now on: the least recently used answers go, and no other is used for longer than a new one. O(entries)."""
        self._settings = settings
        self._make_room(settings.entries)
        now = self._clock.monotonic()
        for key, (value, until) in list(self._entries.items()):
            self._entries[key] = (value, min(until, now + self._ttl_s(value)))

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | Missing | None:
        """Return the answer (None is one) or `MISSING`."""
        entry = self._entries.get(key)
        if entry is None or entry[1] <= self._clock.monotonic():
            self._entries.pop(key, None)
            self.misses += 1
            return MISSING
        self._entries.move_to_end(key)
        self.hits += 1
        return entry[0]

    def recall(self, key: K) -> V | None:
        """Return the answer if it is another than None; else nobody has asked, and `get` may be called."""
        entry = self._entries.get(key)
        if entry is None or entry[0] is None or entry[1] <= self._clock.monotonic():
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def peek(self, key: K) -> V | Missing | None:
        """Return the answer or `MISSING`, whatever its age; this does not count as use."""
        entry = self._entries.get(key)
        return MISSING if entry is None else entry[0]

    def put(self, key: K, value: V | None, most_s: float = math.inf) -> None:
        """Keep an answer, for `most_s` at most; a full cache drops the least recently used one."""
        self._entries.pop(key, None)
        self._make_room(self._settings.entries - 1)
        self._entries[key] = (value, self._clock.monotonic() + min(self._ttl_s(value), most_s))

    def forget(self, key: K) -> None:
        """Drop one answer."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Drop all answers."""
        self._entries.clear()

    def _make_room(self, most: int) -> None:
        while len(self._entries) > most:
            self._entries.popitem(last=False)

    def _ttl_s(self, value: V | None) -> float:
        ttl_s = self._settings.negative_ttl_s if value is None else self._settings.ttl_s
        return ttl_s * (1.0 - self._settings.jitter * self._uniform())
