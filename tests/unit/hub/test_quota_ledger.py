"""How a hub's half of the quota ledger is put together, and what people see of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.late import LateBound
from iothub.hub.quota_ledger import QuotaLedger, feed
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.exposition import Registry
from iothub_services.quota.shared.service import Mode
from iothub_services.quota.usage import Usage
from iothub_services.redis.calls import Call, RedisUnavailableError, Reply
from tests.support.lua_redis import LuaRedis
from tests.support.shared_quota import HubHalf, World


class OneRedis:
    """The client of Redis, as far as it is used here."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run_many(self, calls: list[Call]) -> list[Reply]:
        try:
            return [await self._world.call(call) for call in calls]
        except RedisUnavailableError as error:
            return [error]


def test_mode_is_shown_as_alarm_and_metrics(tmp_path: Path) -> None:
    """Shared: nothing is raised; Redis away: `quota_degraded`, with the reason."""
    redis = LuaRedis()
    world, turns = World(lambda: redis), []
    alarms, registry = Alarms(world), Registry()
    usage: Usage = HubHalf(world, "x").usage
    installation: LateBound[str] = LateBound("the id of the installation")
    made = QuotaLedger(Config(), installation, DataDir(tmp_path), alarms)
    quota = made.quota(cast("Any", OneRedis(world)), world, lambda _, call: turns.append(call), usage)
    feed(registry, quota)
    installation.bind("abc")  # accounts on a server say so only when they answer

    def turn() -> None:
        world.now += 1.0
        turns.pop(0)()

    quota.start()
    for _ in range(5):
        turn()
    assert (quota.mode, alarms.active()) == (Mode.SHARED, [])
    assert b"iothub_quota_ledger_up 1" in registry.render()
    assert all(key.startswith(b"iothub:abc:{quota}:") for key in redis.keys)

    world.is_away = True
    turn()
    assert [alarm.name for alarm in alarms.active()] == [AlarmName.QUOTA_DEGRADED]
    assert "away" in alarms.active()[0].detail
    assert b"iothub_quota_ledger_up 0" in registry.render()

    world.is_away = False
    for _ in range(5):
        turn()
    assert alarms.active() == []
    Deferred.fromCoroutine(quota.stop())


def test_data_directory_has_an_id_that_stays(tmp_path: Path) -> None:
    """One that is no id is made anew."""
    first = DataDir(tmp_path).hub_id()
    assert DataDir(tmp_path).hub_id() == first
    (tmp_path / "hub-id").write_text("?")

    assert DataDir(tmp_path).hub_id() not in (first, "?")
