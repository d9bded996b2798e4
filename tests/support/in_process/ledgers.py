"""What runs the quota ledger's scripts in tests, both with the same face: Lua over a fake Redis, and the twins in Python."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Protocol

from iothub_services.quota.shared.embedded import EmbeddedLedger
from iothub_services.redis.calls import Argument, Reply, Script
from tests.support.servers.lua_redis import LuaRedis


class Ledger(Protocol):
    """`now_us`: its time."""

    now_us: int

    def eval(self, script: Script, count: int, *arguments: Argument) -> Reply:
        """Run a script with that number of keys, and arguments."""

    def flush(self) -> None:
        """Lose everything."""

    def saved(self) -> object:
        """Return what it holds now, for `fall_back`."""

    def fall_back(self, saved: object) -> None:
        """Hold again what it held then."""

    def names(self, key: str) -> list[str]:
        """Return who has something at a key of hubs or rates."""


class TwinLedger:
    """The twins in Python; fulfils `Ledger`."""

    def __init__(self) -> None:
        self.now_us = 0
        self.flush()

    def wall(self) -> float:
        return self.now_us / 1_000_000

    def monotonic(self) -> float:
        return self.wall()

    def eval(self, script: Script, count: int, *arguments: Argument) -> Reply:
        return self.kept.run(script.digest, [str(key) for key in arguments[:count]], arguments[count:])

    def flush(self) -> None:
        self.kept = EmbeddedLedger(self)

    def saved(self) -> EmbeddedLedger:
        return deepcopy(self.kept, {id(self): self})

    def fall_back(self, saved: object) -> None:
        assert isinstance(saved, EmbeddedLedger)
        self.kept = saved

    def names(self, key: str) -> list[str]:
        found = self.kept._hubs if key.endswith(":hubs") else self.kept._rates.of(key, self.now_us // 1000)
        return list(found)


LEDGERS: dict[str, Callable[[], Ledger]] = {"redis": LuaRedis, "embedded": TwinLedger}
