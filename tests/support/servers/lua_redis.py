"""As much of Redis as the quota ledger's scripts need: hashes and a sorted set in Python, the scripts run by a real Lua.

Much quicker than a fake of all Redis, which property tests need; `tests/services` runs the same scripts on the real one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from lupa import lua51  # type: ignore[import-untyped]

from iothub_services.redis.calls import Reply, Script


class LuaRedis:
    """Invariant: every key holds a hash or a sorted set, never an empty one."""

    def __init__(self) -> None:
        self._lua = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._compiled: dict[str, Any] = {}
        self.keys: dict[bytes, dict[bytes, Any]] = {}
        self._ends: dict[bytes, float] = {}  # in ms
        self.now_us = 0
        self._lua.globals()[b"redis"] = self._lua.table_from({b"call": self._call})

    def flush(self) -> None:
        self.keys.clear()
        self._ends.clear()

    def saved(self) -> object:
        return {key: dict(value) for key, value in self.keys.items()}

    def fall_back(self, saved: object) -> None:
        self.keys = cast("dict[bytes, dict[bytes, Any]]", saved)

    def names(self, key: str) -> list[str]:
        return [name.decode() for name in self._of(key.encode())]

    def eval(self, script: Script, count: int, *arguments: object) -> Reply:
        """Run a script with KEYS and ARGV."""
        run = self._compiled.get(script.digest)
        if run is None:
            text = f"return function(KEYS, ARGV)\n{script.text}\nend"
            run = self._compiled[script.digest] = self._lua.execute(text.encode())
        self._expire_keys()
        texts = [_text(argument) for argument in arguments]
        return cast("Reply", self._reply(run(self._table(texts[:count]), self._table(texts[count:]))))

    def _call(self, verb: bytes, *arguments: object) -> object:
        command: Callable[..., object] = getattr(self, f"_{verb.decode().lower()}")
        answer = command(*(_text(argument) for argument in arguments))
        if isinstance(answer, list):
            return self._table(answer)
        return False if answer is None else answer

    def _table(self, items: list[bytes]) -> Any:
        return self._lua.table_from(items)

    def _reply(self, value: Any) -> object:
        if isinstance(value, bytes):
            return value
        if isinstance(value, bool) or value is None:
            return 1 if value else None
        if isinstance(value, int | float):
            return int(value)
        return [self._reply(value[place]) for place in range(1, len(value) + 1)]

    def _of(self, key: bytes) -> dict[bytes, Any]:
        return self.keys.get(key, {})

    def _time(self) -> list[bytes]:
        return [b"%d" % part for part in divmod(self.now_us, 1_000_000)]

    def _hget(self, key: bytes, name: bytes) -> bytes | None:
        return self._of(key).get(name)

    def _hgetall(self, key: bytes) -> list[bytes]:
        return [part for pair in self._of(key).items() for part in pair]

    def _hvals(self, key: bytes) -> list[bytes]:
        return list(self._of(key).values())

    def _hset(self, key: bytes, name: bytes, value: bytes) -> int:
        self.keys.setdefault(key, {})[name] = value
        return 1

    def _hdel(self, key: bytes, name: bytes) -> int:
        found = self._of(key).pop(name, None)
        if not self._of(key):
            self._forget(key)
        return int(found is not None)

    def _expire(self, key: bytes, seconds: bytes) -> int:
        assert float(seconds) > 0
        return self._end(key, self._now_ms + float(seconds) * 1000)

    def _expireat(self, key: bytes, at: bytes) -> int:
        return self._end(key, float(at) * 1000)

    @property
    def _now_ms(self) -> int:
        return self.now_us // 1000

    def _end(self, key: bytes, at_ms: float) -> int:
        if key not in self.keys:
            return 0
        self._ends[key] = at_ms
        if at_ms <= self._now_ms:
            self._forget(key)
        return 1

    def _expire_keys(self) -> None:
        for key in [key for key, at_ms in self._ends.items() if self._now_ms > at_ms]:
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        self.keys.pop(key, None)
        self._ends.pop(key, None)

    def _zadd(self, key: bytes, score: bytes, name: bytes) -> int:
        self.keys.setdefault(key, {})[name] = float(score)
        return 1

    def _zscore(self, key: bytes, name: bytes) -> bytes | None:
        score = self._of(key).get(name)
        return None if score is None else _text(score)

    def _zrange(self, key: bytes, start: bytes, stop: bytes) -> list[bytes]:
        ordered = sorted(self._of(key), key=lambda name: (self._of(key)[name], name))
        return ordered[int(start) : int(stop) + 1]

    def _zremrangebyscore(self, key: bytes, low: bytes, high: bytes) -> int:
        assert low == b"-inf"
        gone = [name for name, score in self._of(key).items() if score <= float(high)]
        for name in gone:
            self._hdel(key, name)
        return len(gone)


def _text(value: object) -> bytes:
    """As Redis sees an argument of a client, and Lua's numbers."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return b"%d" % value if math.isfinite(value) and value == int(value) else b"%.17g" % value
    return str(value).encode()
