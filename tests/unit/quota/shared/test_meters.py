"""Leased rates: the parts of all hubs make the limit, follow the demand, and no part that moves is a new burst."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub_services.quota.names import Quota
from iothub_services.quota.rates import RateRegistry
from iothub_services.quota.resolve import resolve_texts
from iothub_services.quota.shared.keys import Keys
from iothub_services.quota.shared.meters import RETRY_S, LeasedRate, WatchedMeter
from tests.support.in_process.shared_quota import SCOPE, HubHalf, World

RATE = 600


class Publishers:
    """Everybody at one hub publishes as much as he may; who is held back comes back when he is told to."""

    def __init__(self, world: World, folder: Path, name: str) -> None:
        self.world = world
        self.half = HubHalf(world, name, folder)
        limits = f"publish_messages={RATE}/1s"
        self.book = RateRegistry(7, self.half.usage, world, self.half.observer)
        self.book.tenant.set_limits(resolve_texts(limits))
        self.tenant = self.half.tenant(limits)
        self.tenant.apply_limits(self.book.tenant)
        self.count = 0
        self._again_at = self._turn_at = 0.0

    @property
    def rate(self) -> LeasedRate:
        (rate,) = self.half.shared.rates.rates_of(7)
        return rate

    def step(self, *, is_busy: bool) -> None:
        now = self.world.monotonic()
        meter = self.book.tenant.meter(Quota.PUBLISH_MESSAGES)
        assert isinstance(meter, WatchedMeter)
        while is_busy and self._again_at <= now:
            wait = meter.take(1, now)
            if wait > 0.0:
                self._again_at = now + 0.1  # the next tick but one of the engine's wheel, at the latest
            else:
                self.count += 1
        if self._turn_at <= now:
            self.half.turn()
            self._turn_at = now + self.half.shared.pause_s


@pytest.fixture
def hubs(world: World, tmp_path: Path) -> list[Publishers]:
    made = [Publishers(world, tmp_path, name) for name in "abc"]
    run(made, [], 4.0)
    return made


def run(hubs: list[Publishers], busy: list[int], seconds: float) -> int:
    """Let time pass; return what passed at all hubs together."""
    before = sum(each.count for each in hubs)
    for _ in range(round(seconds / 0.01)):
        hubs[0].world.now += 0.01
        for number, each in enumerate(hubs):
            each.step(is_busy=number in busy)
    return sum(each.count for each in hubs) - before


def test_rate_of_all_hubs_is_the_limit(hubs: list[Publishers]) -> None:
    """Three that want everything: within 5 % over 10 s, in equal parts."""
    passed = run(hubs, [0, 1, 2], 10.0)

    assert RATE * 10 * 0.95 <= passed <= RATE * 10 * 1.05
    assert max(each.count for each in hubs) < min(each.count for each in hubs) * 1.1


def test_one_hub_may_use_all_that_others_do_not(hubs: list[Publishers]) -> None:
    """Within 5 % over 10 s, the beginning included."""
    assert RATE * 10 * 0.95 <= run(hubs, [1], 10.0) <= RATE * 10 * 1.05


def test_rate_follows_the_demand(hubs: list[Publishers]) -> None:
    """All of it moves from one hub to another one in the middle of 10 s."""
    run(hubs, [0], 10.0)

    assert RATE * 10 * 0.95 <= run(hubs, [0], 5.0) + run(hubs, [1], 5.0) <= RATE * 10 * 1.05


def test_demand_that_goes_to_and_fro_is_no_new_burst(hubs: list[Publishers]) -> None:
    """Ten moves in ten seconds: not a unit more than the limit and what three hubs may have saved."""
    run(hubs, [0], 5.0)
    passed = sum(run(hubs, [number % 2], 1.0) for number in range(10))

    assert RATE * 10 * 0.6 <= passed <= RATE * 10 * 1.05


def test_parts_are_never_more_than_the_limit(hubs: list[Publishers]) -> None:
    """At any moment, whoever is busy."""
    for busy in ([0], [0, 1], [2], [0, 1, 2], []):
        for _ in range(20):
            run(hubs, busy, 0.05)
            assert sum(each.rate.share for each in hubs) <= RATE * 1.001


def test_silent_hub_reports_nothing(hubs: list[Publishers]) -> None:
    """But that it lives: one call in a turn."""
    run(hubs, [], 2.0)
    world = hubs[0].world
    calls = world.calls
    for _ in range(10):
        world.now += 0.1
        hubs[0].half.turn()

    assert world.calls == calls + 10


def test_share_is_kept_while_redis_is_away(hubs: list[Publishers]) -> None:
    """Nobody gets more; all together have the limit."""
    run(hubs, [0, 1, 2], 2.0)
    hubs[0].world.is_away = True
    passed = run(hubs, [0, 1, 2], 10.0)

    assert RATE * 10 * 0.95 <= passed <= RATE * 10 * 1.05


def test_tenant_that_is_put_away_gives_its_part_back(hubs: list[Publishers]) -> None:
    """The others have all of it."""
    hubs[0].tenant.close()
    hubs[1].tenant.close()
    run(hubs[:2], [], 0.3)
    run(hubs, [2], 1.0)

    assert hubs[2].rate.share == pytest.approx(RATE, rel=0.01)


def test_tenant_that_comes_back_at_once_is_not_forgotten(hubs: list[Publishers]) -> None:
    """Its end was not told when it began anew: what it gave back is what it had before."""
    first = hubs[0]
    run(hubs, [0], 1.0)
    first.tenant.close()
    first.tenant = first.half.tenant(f"publish_messages={RATE}/1s")
    first.tenant.apply_limits(first.book.tenant)
    first.half.turn()

    held = first.world.ledger.names(Keys(lambda: SCOPE).rate("7:publish_messages/1"))
    assert len(held) == 3


def test_held_back_by_a_part_comes_back_soon(hubs: list[Publishers]) -> None:
    """The rest of the limit may be free: nobody is refused because a small part would take him long."""
    run(hubs, [0], 3.0)
    now = hubs[1].world.monotonic()
    meter = hubs[1].book.tenant.meter(Quota.PUBLISH_MESSAGES)
    assert isinstance(meter, WatchedMeter)
    waits = [meter.take(1, now) for _ in range(400)]

    assert max(waits) == RETRY_S
    assert meter.wait(1, now) == RETRY_S
    spent = meter.spent
    meter.spend(3)
    assert meter.spent == spent + 3


def test_changed_limit_is_divided_anew(hubs: list[Publishers]) -> None:
    """In proportion at once; by demand soon."""
    run(hubs, [0, 1, 2], 3.0)
    for each in hubs:
        each.book.tenant.set_limits(resolve_texts("publish_messages=300/1s"))
        each.tenant.apply_limits(each.book.tenant)
    assert sum(each.rate.share for each in hubs) <= 300.3
    run(hubs, [0, 1, 2], 1.0)

    assert run(hubs, [0, 1, 2], 10.0) <= 3000 * 1.05


def test_rate_that_is_lifted_is_not_leased(hubs: list[Publishers]) -> None:
    """Nor looked at."""
    hubs[0].book.tenant.set_limits(resolve_texts(""))
    hubs[0].tenant.apply_limits(hubs[0].book.tenant)

    assert list(hubs[0].half.shared.rates.rates_of(7)) == []
    assert hubs[0].book.tenant.meter(Quota.PUBLISH_MESSAGES) is None
