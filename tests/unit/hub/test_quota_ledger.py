"""How a hub's half of the quota ledger is put together, and what people see of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.late import LateBound
from iothub.hub.quota_ledger import CALLS, StoreCaller, feed, ledger_of_workers, on_redis, used_in
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.exposition import Registry
from iothub_services.quota.names import Quota
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.embedded import KEYS
from iothub_services.quota.shared.service import Mode
from iothub_services.quota.slots import SlotFile
from iothub_services.quota.usage import Usage, UsageStore, usage_key
from iothub_services.redis.calls import Call, RedisRefusedError, RedisUnavailableError, Reply, script_call
from iothub_services.store_process.ledger import ANSWER_S
from tests.support.in_process.shared_quota import HubHalf, World
from tests.support.servers.lua_redis import LuaRedis


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
    made = on_redis(cast("Any", OneRedis(world)), Config(), installation, DataDir(tmp_path), alarms)
    quota = made.quota(world, lambda _, call: turns.append(call), usage)
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


class Thread:
    """A thread that does what it is given when the test says so; fulfils `Run`."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def run(self, name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Deferred[Any]:
        assert name == "quota.run"
        answer: Deferred[Any] = Deferred()

        def work() -> None:
            try:
                result = call(*args, **kwargs)
            except BackendError as error:
                answer.errback(error)
            else:
                answer.callback(result)

        self.calls.append(work)
        return answer


class Answers:
    """The store process."""

    def run(self, digest: str, keys: Sequence[str], arguments: Sequence[object]) -> Reply:
        return len(digest) + len(keys) + len(arguments)


CALL = script_call(scripts.LEAVE, [KEYS.hubs, KEYS.state], "a.1", 0, 1)


def outcomes_of(answer: Deferred[Any]) -> list[Any]:
    found: list[Any] = []
    answer.addCallbacks(found.append, lambda failure: found.append(failure.value))
    return found


def test_worker_waits_for_the_store_process_as_long_as_an_answer_may_take() -> None:
    """What waited behind another call for so long is not asked any more; the next one is."""
    world, thread = World(), Thread()
    caller = StoreCaller(cast("Any", Answers()), thread.run, world)
    first, second = (outcomes_of(Deferred.fromCoroutine(caller.call(CALL))) for _ in range(2))
    thread.calls[0]()
    world.now += ANSWER_S + 0.1
    thread.calls[1]()
    third = outcomes_of(Deferred.fromCoroutine(caller.call(CALL)))
    thread.calls[2]()

    assert first == third == [40 + 2 + 3]
    assert "does not answer" in str(second[0])


def test_calls_that_wait_for_the_store_process_are_bounded() -> None:
    """One more is refused at once; when one is answered, the next may be asked."""
    thread = Thread()
    caller = StoreCaller(cast("Any", Answers()), thread.run, World())
    for _ in range(CALLS):
        outcomes_of(Deferred.fromCoroutine(caller.call(CALL)))
    refused = outcomes_of(Deferred.fromCoroutine(caller.call(CALL)))
    thread.calls.pop(0)()
    accepted = outcomes_of(Deferred.fromCoroutine(caller.call(CALL)))
    thread.calls.pop()()

    assert isinstance(refused[0], BackendError)
    assert accepted == [40 + 2 + 3]


DAY = 86_400
KEY = usage_key(7, "", Quota.PUBLISH_MESSAGES, DAY)


def used(data_dir: DataDir, world: World, count: int) -> None:
    data_dir.own.mkdir(parents=True, exist_ok=True)
    usage = Usage(UsageStore(data_dir.usage, world, lambda *_: None), world, SlotFile(data_dir.usage_slots))
    usage.cell(KEY).add(count)
    usage.close()


def test_window_goes_on_where_all_workers_and_the_hub_before_them_were(tmp_path: Path) -> None:
    """Also where a worker of those is no more; one that is back is not counted twice."""
    world = World()
    workers = [DataDir.of_worker(tmp_path, number) for number in (1, 2, 3)]
    for data_dir, count in zip((DataDir(tmp_path), *workers), (1, 20, 300, 4000), strict=True):
        used(data_dir, world, count)
    ledger = ledger_of_workers(Config(), DataDir(tmp_path), world)
    place, hub = f"1-{workers[1].hub_id()}", f"1-{workers[1].hub_id()}.1"
    keys = (KEYS.hubs, KEYS.state)
    start = int(world.now) // DAY * DAY
    ledger.run(scripts.ENTER.digest, keys, (hub, 0, scripts.LEASE_MS, scripts.SETTLE_MS, 0))

    figures = (place, 305, start + 2 * DAY, 0)
    answer = ledger.run(scripts.ADD_UP.digest, (*keys, KEYS.window(KEY, start)), (hub, 1, scripts.LEASE_MS, *figures))

    assert answer == [0, b"4021"]
    assert [row.used for row in used_in(workers[2], world)] == [4000]


def test_script_of_another_version_is_refused(tmp_path: Path) -> None:
    """A worker that was started after an upgrade, beside a store process from before."""
    ledger = ledger_of_workers(Config(), DataDir(tmp_path), World())

    with pytest.raises(RedisRefusedError, match="another version"):
        ledger.run("0" * 40, (), ())
