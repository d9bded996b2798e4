"""Windows below an hour that several hubs use together: `connects` and `subscribes` are asked for, budgets are granted in advance."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from iothub_services.quota.names import Quota
from iothub_services.quota.rates import RateRegistry
from iothub_services.quota.resolve import resolve_texts
from iothub_services.quota.shared.windows import BudgetPart
from tests.support.in_process.shared_quota import HubHalf, World, turns

LIMITS = "connects=20/1s publish_messages=400/1m"


class Hub:
    """One hub with one tenant's rates."""

    def __init__(self, world: World, folder: Path, name: str) -> None:
        self.world = world
        self.half = HubHalf(world, name, folder)
        self.rates = RateRegistry(7, self.half.usage, world, self.half.observer).tenant
        self.tenant = self.half.tenant(LIMITS)
        self.apply_limits(LIMITS)

    def apply_limits(self, limits: str) -> None:
        self.rates.set_limits(resolve_texts(limits))
        self.tenant.apply_limits(self.rates)

    def connects(self, count: int) -> list[bool]:
        """So many CONNECTs at once; what has been decided by now."""
        outcomes: list[bool] = []

        async def walk() -> None:
            await self.tenant.room((Quota.CONNECTS, 1))
            outcomes.append(self.rates.take(Quota.CONNECTS) == 0.0)
            self.tenant.spent(Quota.CONNECTS)

        for _ in range(count):
            Deferred.fromCoroutine(walk())
        self.half.run_soon()
        return outcomes

    def publish(self, count: int) -> int:
        meter = self.rates.meter(Quota.PUBLISH_MESSAGES)
        assert meter is not None
        return sum(meter.take(1, self.world.monotonic()) == 0.0 for _ in range(count))


@pytest.fixture
def hubs(world: World, tmp_path: Path) -> list[Hub]:
    made = [Hub(world, tmp_path, name) for name in "ab"]
    turns(world, *(hub.half for hub in made), seconds=4.0)
    return made


def pass_time(hubs: list[Hub], seconds: float) -> None:
    turns(hubs[0].world, *(hub.half for hub in hubs), seconds=seconds)


def test_so_many_connect_in_a_window_at_all_hubs_together(hubs: list[Hub]) -> None:
    """One hub may have all of them; in the next second the other one."""
    first = hubs[0].connects(60)
    pass_time(hubs, 0.5)
    other = hubs[1].connects(10)
    pass_time(hubs, 0.4)
    assert (sum(first), sum(other)) == (20, 0)
    assert Quota.CONNECTS in hubs[0].half.observer.refusals

    pass_time(hubs, 3.0)
    again = hubs[1].connects(30)
    pass_time(hubs, 0.9)
    assert sum(again) == 20


def test_budget_is_never_exceeded_and_is_used_up(hubs: list[Hub]) -> None:
    """400 in a minute, whoever publishes; what one hub was given in advance comes back to the other."""
    passed = 0
    for _ in range(200):
        passed += hubs[0].publish(20)
        pass_time(hubs, 0.1)
    assert 380 <= passed <= 400
    passed += sum(hub.publish(400) for hub in hubs)
    assert passed <= 400

    pass_time(hubs, 45.0)
    later = 0
    for _ in range(100):
        later += hubs[1].publish(20)
        pass_time(hubs, 0.1)
    assert 300 <= later <= 400


def test_limits_that_change_keep_what_is_spent(hubs: list[Hub]) -> None:
    """Another window begins with nothing granted; one that is gone is given back."""
    hubs[0].connects(5)
    for hub in hubs:
        hub.apply_limits("connects=8/1s,100/1m")
    pass_time(hubs, 0.2)
    assert sum(hubs[0].connects(20)) <= 3
    for hub in hubs:
        hub.apply_limits("")
    pass_time(hubs, 0.2)

    assert hubs[0].connects(3) == [True, True, True]


def test_closed_tenant_holds_no_part(hubs: list[Hub]) -> None:
    """The other hub may use the whole window."""
    hubs[0].tenant.close()
    pass_time(hubs, 0.3)

    assert sum(hubs[1].connects(20)) == 20


def test_spent_part_of_a_budget_is_found_by_asking(hubs: list[Hub]) -> None:
    """What the engine keeps for itself, to the unit; and another limit leaves the buckets beside it alone."""
    hub = hubs[0]
    hub.rates.set_limits(resolve_texts("publish_messages=50/1s,1000/1m"))
    meter = hub.rates.meters[Quota.PUBLISH_MESSAGES]
    part, bucket = BudgetPart(meter, 0, hub.world), meter.buckets[0]
    for _ in range(7):
        assert meter.take(1, hub.world.monotonic()) == 0.0
    assert part.spent() == 7

    part.limit(10)
    assert (meter.budgets[0].limit, part.spent(), meter.buckets) == (10, 7, [bucket])
    for granted in (5, 0):
        part.limit(granted)
        assert (part.spent(), meter.budgets[0].limit) == (7, granted)
