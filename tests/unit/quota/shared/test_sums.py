"""Calendar windows that several hubs add up."""

from __future__ import annotations

from pathlib import Path

from iothub_services.quota.grammar import DAY_S, Window
from iothub_services.quota.names import Quota
from iothub_services.quota.windows import REFUSED, DayCounter
from tests.support.in_process.shared_quota import HubHalf, World, turns

LIMIT = 100


def hub(world: World, folder: Path, name: str, device: str = "") -> tuple[HubHalf, DayCounter]:
    half = HubHalf(world, name, folder)
    owner = (7, device)
    counter = DayCounter(half.usage, world, owner, Quota.PUBLISH_MESSAGES, [Window(DAY_S, LIMIT)], lambda: None)
    half.turn()
    return half, counter


def test_day_is_shared_by_all_hubs(world: World, tmp_path: Path) -> None:
    """What one has used the other one has not, from the next turn of both on."""
    (a, first), (b, second) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    assert first.take(90) == 0.0
    assert second.take(1) == 0.0
    turns(world, a, b, seconds=0.2)
    assert second.left() == 9
    assert second.take(10) == REFUSED
    assert second.take(9) == 0.0
    turns(world, b, seconds=0.1)
    assert first.take(1) == 0.0  # it has not heard yet: this is the bound
    turns(world, a, seconds=0.1)

    assert first.take(1) == REFUSED


def test_hub_that_comes_later_hears_what_was_used(world: World, tmp_path: Path) -> None:
    """Before its first message, for it asks when it looks at a window first; a day later all begin anew."""
    a, first = hub(world, tmp_path, "a")
    assert first.take(60) == 0.0
    turns(world, a, seconds=0.1)
    _, second = hub(world, tmp_path, "b")
    assert second.left() == 40
    world.now += DAY_S

    assert second.take(LIMIT) == 0.0


def test_emptied_redis_hears_it_again(world: World, tmp_path: Path) -> None:
    """Every hub keeps its own figures."""
    (a, first), (b, second) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    assert first.take(70) == 0.0
    assert second.take(20) == 0.0
    turns(world, a, b, seconds=0.2)
    world.flush()
    turns(world, a, b, seconds=5.0)

    assert (first.left(), second.left()) == (10, 10)


def test_lost_data_directory_has_used_what_it_had_used(world: World, tmp_path: Path) -> None:
    """A successor of the same name begins with nothing of its own, and the ledger remembers."""
    a, first = hub(world, tmp_path, "a")
    assert first.take(70) == 0.0
    turns(world, a, seconds=0.1)
    (tmp_path / "a.db").rename(tmp_path / "lost.db")
    _, again = hub(world, tmp_path, "a")

    assert again.left() == 30


def test_device_that_is_deleted_while_the_ledger_is_asked_begins_with_nothing(world: World, tmp_path: Path) -> None:
    """The answer that comes then is to the figures of before."""
    (a, first), (b, second) = hub(world, tmp_path, "a", "dev1"), hub(world, tmp_path, "b", "dev1")
    assert first.take(70) == 0.0
    turns(world, a, b, seconds=0.2)
    a.usage.forget_devices(7, ["dev1"])
    first.take(20)
    a.turn_without_answer()
    while a.usage.unreported:
        a.hear_one()
    a.usage.forget_devices(7, ["dev1"])
    a.hear()
    turns(world, a, b, seconds=0.3)

    assert (first.left(), second.left()) == (LIMIT, LIMIT)


def test_device_of_a_deleted_one_s_name_begins_with_nothing(world: World, tmp_path: Path) -> None:
    """Every hub takes back what it had said."""
    (a, first), (b, second) = hub(world, tmp_path, "a", "dev1"), hub(world, tmp_path, "b", "dev1")
    assert first.take(70) == 0.0
    assert second.take(20) == 0.0
    turns(world, a, b, seconds=0.2)
    for half in (a, b):
        half.usage.forget_devices(7, ["dev1"])
    turns(world, a, b, seconds=0.3)
    first.take(1)
    second.take(1)
    turns(world, a, b, seconds=0.3)

    assert min(first.left() or 0, second.left() or 0) >= 98


def test_nothing_is_told_while_nothing_changes(world: World, tmp_path: Path) -> None:
    """And what could not be told is told later."""
    a, first = hub(world, tmp_path, "a")
    turns(world, a, seconds=0.2)
    assert not a.usage.unreported
    world.is_away = True
    first.take(5)
    turns(world, a, seconds=0.2)
    assert a.usage.unreported
    world.is_away = False
    turns(world, a, seconds=0.2)

    assert not a.usage.unreported
