"""Which records of a shared cache are as new as what the hub has seen."""

from __future__ import annotations

import time

from iothub.testing.clock import ManualClock
from iothub_services.auth.change_watermark import EVERYBODY, NOTHING_SEEN, ChangePosition, ChangeWatermark, Line

ELSEWHERE = 99  # a tenant that nobody asks about


def line(change: int, tenant_id: int = ELSEWHERE, device: str | None = None, name: str = "") -> Line:
    return Line(ChangePosition(change, change * 10), tenant_id, device, name)


def begun(*lines: Line, most: int = 100) -> ChangeWatermark:
    clock = ManualClock()
    watermark = ChangeWatermark(clock, 60.0, most)
    watermark.begin(lines, clock.monotonic())
    return watermark


def at(change: int) -> ChangePosition:
    return ChangePosition(change, change * 10)


def test_record_is_good_until_something_of_it_changes() -> None:
    """A device's own change is nobody else's."""
    watermark = begun(line(5))

    watermark.saw([line(6, 1, "dev1")], 0.0)

    assert not watermark.has_device(1, "dev1", at(5))
    assert watermark.has_device(1, "dev2", at(5))
    assert watermark.has_device(2, "dev1", at(5))
    assert watermark.has_tenant("acme", 1, at(5))
    assert watermark.has_device(1, "dev1", at(6))


def test_change_of_a_tenant_is_one_of_all_its_devices() -> None:
    watermark = begun(line(5))

    watermark.saw([line(6, 1)], 0.0)

    assert not watermark.has_device(1, "dev1", at(5))
    assert not watermark.has_tenant("acme", 1, at(5))
    assert watermark.has_tenant("bmce", 2, at(5))


def test_tenant_that_comes_is_not_taken_for_absent_nor_for_its_predecessor() -> None:
    """The name is a subject of its own: the record may be of another id, or of none."""
    watermark = begun(line(5))

    watermark.saw([line(6, 9, name="acme")], 0.0)

    assert not watermark.has_tenant("acme", 0, at(5))
    assert not watermark.has_tenant("acme", 4, at(5))
    assert watermark.has_tenant("nobody", 0, at(5))


def test_change_of_a_plan_is_everybodys() -> None:
    """Which tenants it concerns is not asked."""
    watermark = begun(line(5))

    watermark.saw([line(6, EVERYBODY)], 0.0)

    assert not watermark.has_device(1, "dev1", at(5))
    assert not watermark.has_tenant("nobody", 0, at(5))
    assert watermark.has_device(1, "dev1", at(6))


def test_what_was_read_before_the_known_part_of_the_log_is_not_used() -> None:
    """Nobody knows what changed then."""
    watermark = begun(line(7), line(8))

    assert not watermark.has_device(1, "dev1", at(6))
    assert watermark.has_device(1, "dev1", at(7))


def test_what_is_beyond_the_last_look_is_not_used() -> None:
    """A hub that is ahead."""
    assert not begun(line(5)).has_device(1, "dev1", at(6))


def test_line_of_another_past_is_told_by_its_time() -> None:
    """Accounts that were restored give the same ids to other changes."""
    watermark = begun(line(5), line(6))

    assert not watermark.has_device(1, "dev1", ChangePosition(6, 61))


def test_memory_is_bounded_and_forgets_the_oldest_first() -> None:
    watermark = begun(line(1), most=10)

    watermark.saw([line(change, 1, f"dev{change}") for change in range(2, 30)], 0.0)

    assert not watermark.has_device(1, "other", at(19))
    assert watermark.has_device(1, "other", at(20))
    assert not watermark.has_device(1, "dev25", at(24))
    assert (len(watermark._times), len(watermark._last)) == (10, 10)


def test_nothing_is_used_before_the_beginning() -> None:
    """A hub that starts, and one without a shared cache."""
    watermark = ChangeWatermark(ManualClock(), 60.0)
    watermark.saw([line(5)], 1.0)

    assert watermark.as_of() == NOTHING_SEEN
    assert watermark.left_s() == 0.0
    assert not watermark.has_device(1, "dev1", NOTHING_SEEN)


def test_log_without_a_line_tells_nothing() -> None:
    """There is nothing that a record could be true as of."""
    watermark = begun()

    assert watermark.as_of() == NOTHING_SEEN
    assert not watermark.has_device(1, "dev1", NOTHING_SEEN)


def test_without_looks_nothing_is_used_for_long() -> None:
    """As long as the hub's own memory would, counted from before the last look."""
    clock = ManualClock()
    watermark = ChangeWatermark(clock, 60.0)
    watermark.begin([line(5)], clock.monotonic())

    clock.advance(59.0)
    assert watermark.left_s() == 1.0
    clock.advance(2.0)
    assert watermark.left_s() < 0
    watermark.saw([], watermark.now())
    assert watermark.left_s() == 60.0
    watermark.apply(5.0)
    assert watermark.left_s() == 5.0


def test_line_costs_the_same_when_the_memory_is_full() -> None:
    """On the reactor thread; a thousand lines may come at once."""
    most = 30_000
    watermark = begun(most=most)
    watermark.begin([line(1)], 1.0)
    cost_s = []
    for beginning in (2, 2 + most):
        lines = [line(change, 1, str(change)) for change in range(beginning, beginning + most)]
        began = time.process_time()
        watermark.saw(lines, 1.0)
        cost_s.append(time.process_time() - began)

    assert cost_s[1] < 8 * cost_s[0]
