"""Allowances of an hour and more, and what survives of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from iothub.base.errors import BackendError
from iothub.testing.clock import ManualClock
from iothub_services.quota.grammar import parse_limits
from iothub_services.quota.names import Quota
from iothub_services.quota.slots import SlotFile
from iothub_services.quota.usage import Usage, UsageStore
from iothub_services.quota.windows import REFUSED, DayCounter

NOON = 1_700_049_600.0  # 15 November 2023, 12:00 UTC, a Wednesday
HOUR, DAY = 3600, 86_400
QUOTA = Quota.PUBLISH_MESSAGES


@dataclass
class Machine:
    """A data directory that outlives processes."""

    path: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(wall=NOON))
    has_slots: bool = True
    usages: list[tuple[Usage, UsageStore, SlotFile | None]] = field(default_factory=list)

    def start(self) -> Usage:
        """Begin a process; one that was begun before counts as killed."""
        store = UsageStore(self.path / "usage.db", self.clock, lambda name, text: None)
        slots = SlotFile(self.path / "usage.map") if self.has_slots else None
        self.usages.append((Usage(store, self.clock, slots), store, slots))
        return self.usages[-1][0]

    def close(self) -> None:
        for _, store, slots in self.usages:
            store.close()
            if slots is not None:
                slots.close()

    def counter(
        self, usage: Usage, limits: str, owner: tuple[int, str] = (1, ""), recorded: list[int] | None = None
    ) -> DayCounter:
        windows = parse_limits(limits)[QUOTA]
        return DayCounter(
            usage, self.clock, owner, QUOTA, windows, lambda: recorded.append(1) if recorded is not None else None
        )


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


def run_now(name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Deferred[Any]:
    assert name == "usage.write"
    try:
        return succeed(call(*args, **kwargs))
    except BackendError:
        return fail()


def flush(usage: Usage, run: Any = run_now) -> list[Any]:
    results: list[Any] = []
    Deferred.fromCoroutine(usage.flush(run)).addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


def taken(counter: DayCounter, times: int, units: int = 1) -> int:
    return sum(counter.take(units) == 0.0 for _ in range(times))


def test_day_window_grants_exactly_its_limit(machine: Machine) -> None:
    """Then refuses until midnight UTC, whatever is asked."""
    counter = machine.counter(machine.start(), "publish_messages=100/1d")

    assert taken(counter, 150) == 100
    assert counter.take(1) == REFUSED
    machine.clock.advance(12 * HOUR - 0.5)
    assert counter.take(1) == REFUSED
    machine.clock.advance(0.5)
    assert taken(counter, 150) == 100


def test_all_windows_must_have_room(machine: Machine) -> None:
    """What one refuses, no other counts."""
    counter = machine.counter(machine.start(), "publish_messages=3/1h,5/1d")

    assert taken(counter, 9) == 3
    machine.clock.advance(HOUR)
    assert taken(counter, 9) == 2
    assert counter.left() == 0


def test_units_pass_whole_or_not_at_all(machine: Machine) -> None:
    """Bytes of one message."""
    counter = machine.counter(machine.start(), "publish_messages=100/1d")

    assert counter.take(60) == 0.0
    assert counter.take(41) == REFUSED
    assert counter.left() == 40


def test_day_window_survives_a_kill_exactly(machine: Machine) -> None:
    """No flush, no close: neither more nor less is left than before."""
    assert taken(machine.counter(machine.start(), "publish_messages=100/1d"), 60) == 60

    again = machine.counter(machine.start(), "publish_messages=100/1d")

    assert again.left() == 40
    assert taken(again, 90) == 40
    assert machine.counter(machine.start(), "publish_messages=100/1d").take(1) == REFUSED


def test_day_window_survives_a_kill_of_a_kill(machine: Machine) -> None:
    """A counter that nobody asked for in the second life is still there in the third."""
    taken(machine.counter(machine.start(), "publish_messages=100/1d"), 60)
    machine.start()

    assert machine.counter(machine.start(), "publish_messages=100/1d").left() == 40


def test_without_slots_a_kill_loses_at_most_what_was_not_flushed(machine: Machine) -> None:
    """The bound that a power cut has too: one flush interval."""
    machine.has_slots = False
    usage = machine.start()
    counter = machine.counter(usage, "publish_messages=100/1d")
    taken(counter, 30)
    assert flush(usage) == [None]
    taken(counter, 5)

    assert machine.counter(machine.start(), "publish_messages=100/1d").left() == 70


def test_clean_end_keeps_everything(machine: Machine) -> None:
    """Without any slot."""
    machine.has_slots = False
    usage = machine.start()
    taken(machine.counter(usage, "publish_messages=100/1d"), 30)
    usage.close()

    assert machine.counter(machine.start(), "publish_messages=100/1d").left() == 70


def test_window_that_ended_while_nobody_ran_is_forgotten(machine: Machine) -> None:
    """In database and slots alike."""
    usage = machine.start()
    taken(machine.counter(usage, "publish_messages=100/1d"), 30)
    flush(usage)
    machine.clock.advance(DAY)
    usage = machine.start()

    assert usage.figures(1) == []
    assert machine.counter(usage, "publish_messages=100/1d").left() == 100


def test_failed_flush_is_made_up_for(machine: Machine) -> None:
    """A full disk loses nothing once it has room again."""
    machine.has_slots = False
    usage = machine.start()
    taken(machine.counter(usage, "publish_messages=100/1d"), 30)

    (error,) = flush(usage, lambda *_: fail(BackendError("full", retryable=True)))
    assert isinstance(error, BackendError)
    assert flush(usage) == [None]

    assert machine.counter(machine.start(), "publish_messages=100/1d").left() == 70


def test_owners_are_counted_apart(machine: Machine) -> None:
    """Tenants, and a tenant's devices; also when names look alike."""
    usage = machine.start()
    owners = [(1, ""), (1, "1"), (11, ""), (2, ""), (1, "dev")]
    counters = [machine.counter(usage, "publish_messages=10/1d", owner) for owner in owners]
    taken(counters[0], 10)

    assert [counter.left() for counter in counters] == [0, 10, 10, 10, 10]
    again = machine.start()
    assert [machine.counter(again, "publish_messages=10/1d", owner).left() for owner in owners] == [0, 10, 10, 10, 10]


def test_counters_of_one_owner_share_what_is_used(machine: Machine) -> None:
    """A device's next session does not begin anew."""
    usage = machine.start()
    first, second = (machine.counter(usage, "publish_messages=10/1d") for _ in range(2))
    taken(first, 6)

    assert second.left() == 4
    machine.clock.advance(DAY)
    taken(second, 3)
    assert first.left() == 7


def test_changed_limit_keeps_what_is_used(machine: Machine) -> None:
    """Raising and lowering is applied at once."""
    counter = machine.counter(machine.start(), "publish_messages=10/1d")
    taken(counter, 8)

    counter.set_windows(parse_limits("publish_messages=5/1s,12/1d")[QUOTA])
    assert taken(counter, 9) == 4
    counter.set_windows(parse_limits("publish_messages=5/1d")[QUOTA])
    assert counter.take(1) == REFUSED
    assert counter.left() == 0


def test_clock_set_back_gives_no_second_allowance(machine: Machine) -> None:
    """Within a window's length the later window stays in force; a mistake of years does not lock a tenant out."""
    counter = machine.counter(machine.start(), "publish_messages=10/1d")
    machine.clock.advance(13 * HOUR)
    taken(counter, 10)

    machine.clock.jump_wall(-13 * HOUR)
    assert counter.take(1) == REFUSED
    machine.clock.jump_wall(-400 * DAY)
    assert counter.take(1) == 0.0


def test_dry_run_window_only_reports(machine: Machine) -> None:
    """It counts in the same cell as the enforced one."""
    recorded: list[int] = []
    counter = machine.counter(
        machine.start(), "publish_messages=10/1d dry-run:publish_messages=4/1d", recorded=recorded
    )

    assert taken(counter, 12) == 10
    assert len(recorded) == 6


def test_dry_run_alone_never_refuses(machine: Machine) -> None:
    """And nothing is ever "left" of it."""
    recorded: list[int] = []
    counter = machine.counter(machine.start(), "dry-run:publish_messages=4/1d", recorded=recorded)

    assert taken(counter, 6) == 6
    assert len(recorded) == 2
    assert counter.left() is None


def test_purged_tenant_leaves_nothing(machine: Machine) -> None:
    """Not in memory, slots or database; another tenant's figures stay."""
    usage = machine.start()
    for tenant_id in (1, 2):
        taken(machine.counter(usage, "publish_messages=10/1d", (tenant_id, "")), 4)
    flush(usage)
    usage.forget_tenant(1)
    assert machine.usages[0][1].drop_tenant(1) == 1
    again = machine.start()

    assert again.figures(1) == []
    assert [row.used for row in again.figures(2)] == [4]


def test_figures_show_present_windows(machine: Machine) -> None:
    """For `quota explain` and the tenant's own view, also before anybody has used the counter in this process."""
    usage = machine.start()
    taken(machine.counter(usage, "publish_messages=10/1d"), 4)
    flush(usage)

    (row,) = machine.start().figures(1)
    assert (row.key.quota, row.key.seconds, row.used) == ("publish_messages", DAY, 4)
    assert (row.start, row.end) == (NOON - 12 * HOUR, NOON + 12 * HOUR)
