"""The database of calendar windows, and what a start makes of database and slots that disagree."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, succeed

from iothub.base.errors import ConflictError, UnavailableError
from iothub.testing.clock import ManualClock
from iothub_services.quota.names import Quota
from iothub_services.quota.slots import SlotFile
from iothub_services.quota.usage import Usage, UsageKey, UsageRow, UsageStore, read_usage, usage_key

DAY = 86_400
MIDNIGHT = 1_699_920_000  # 14 November 2023
KEY = usage_key(1, "", Quota.PUBLISH_MESSAGES, DAY)


def quiet(name: str, text: str) -> None:
    """No alarm is looked at."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[UsageStore]:
    opened = UsageStore(tmp_path / "usage.db", clock, quiet)
    yield opened
    opened.close()


def row(used: int, key: UsageKey = KEY, start: int = MIDNIGHT) -> UsageRow:
    return UsageRow(key, start, start + DAY, used)


def test_store_keeps_the_latest_window_of_a_key(store: UsageStore, clock: ManualClock) -> None:
    """One row per key."""
    store.write([row(5)], clock.wall())
    store.write([row(7)], clock.wall())

    assert list(store.load()) == [row(7)]


def test_store_drops_windows_that_have_ended(store: UsageStore, clock: ManualClock) -> None:
    """The file does not grow with time."""
    other = usage_key(2, "dev", Quota.PUBLISH_BYTES, DAY)
    store.write([row(5), row(6, other, MIDNIGHT + DAY)], clock.wall())
    store.write([row(7, other, MIDNIGHT + DAY)], float(MIDNIGHT + DAY))

    assert list(store.load()) == [row(7, other, MIDNIGHT + DAY)]


def test_store_of_a_future_version_is_refused(tmp_path: Path, store: UsageStore, clock: ManualClock) -> None:
    """Never misread; the hub exits 4."""
    with sqlite3.connect(tmp_path / "usage.db") as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()

    with pytest.raises(ConflictError, match="version 99"):
        UsageStore(tmp_path / "usage.db", clock, quiet)


def test_damaged_store_is_set_aside_with_an_alarm(tmp_path: Path, clock: ManualClock) -> None:
    """The hub starts; what the slots know is still known."""
    slots = SlotFile(tmp_path / "usage.map")
    first = UsageStore(tmp_path / "usage.db", clock, quiet)
    Usage(first, clock, slots).cell(KEY).add(40)
    first.close()
    slots.close()
    (tmp_path / "usage.db").write_bytes(b"not a database, certainly not" * 200)
    alarms: list[str] = []

    second = UsageStore(tmp_path / "usage.db", clock, lambda name, text: alarms.append(text))
    again = SlotFile(tmp_path / "usage.map")

    assert alarms
    assert Usage(second, clock, again).cell(KEY).used == 40
    second.close()
    again.close()


def test_missing_directory_is_one_clear_line(tmp_path: Path, clock: ManualClock) -> None:
    """No traceback for a person."""
    with pytest.raises(UnavailableError):
        UsageStore(tmp_path / "none" / "usage.db", clock, quiet)


@pytest.mark.parametrize(
    ("stored", "mapped", "used"),
    [
        (row(5), (MIDNIGHT, 9), 9),  # killed after a flush
        (row(9), (MIDNIGHT, 5), 9),  # a power cut took the pages of the slots
        (row(9, start=MIDNIGHT - DAY), (MIDNIGHT, 5), 5),  # the slot is of a later window
        (row(5), (MIDNIGHT - DAY, 9), 5),
    ],
)
def test_start_takes_the_later_window_and_the_larger_figure(
    tmp_path: Path, store: UsageStore, clock: ManualClock, stored: UsageRow, mapped: tuple[int, int], used: int
) -> None:
    """No allowance is given twice, whichever of both was lost."""
    slots = SlotFile(tmp_path / "usage.map")
    cell = Usage(store, clock, slots).cell(KEY)
    (record,) = slots.records()
    slots.release(cell.slot)
    slots.take_slot(record.digest, 1, DAY, *mapped)
    store.write([stored], 0.0)

    assert Usage(store, clock, slots).cell(KEY).used == used
    slots.close()


def test_twin_slots_of_a_kill_between_two_steps_are_one(tmp_path: Path, store: UsageStore, clock: ManualClock) -> None:
    """A figure moves by taking the new slot first; the start keeps the larger one and frees the other."""
    slots = SlotFile(tmp_path / "usage.map")
    Usage(store, clock, slots).cell(KEY).add(7)
    (record,) = slots.records()
    slots.take_slot(record.digest, 1, DAY, record.start, 3)

    assert Usage(store, clock, slots).cell(KEY).used == 7
    assert len(list(slots.records())) == 1
    slots.close()


def test_deleted_tenant_leaves_memory_slots_and_file(tmp_path: Path, clock: ManualClock, store: UsageStore) -> None:
    """Nothing comes back from any of the three, now or after a start."""
    slots = SlotFile(tmp_path / "usage.map")
    other = usage_key(2, "", Quota.PUBLISH_MESSAGES, DAY)
    usage = Usage(store, clock, slots)
    usage.cell(KEY).add(5)
    usage.cell(other).add(7)

    def now(_name: str, call: Callable[..., object], *args: object) -> Deferred[object]:
        return succeed(call(*args))

    Deferred.fromCoroutine(usage.flush(now))  # type: ignore[arg-type]
    Deferred.fromCoroutine(usage.drop_tenant(1, now))  # type: ignore[arg-type]

    assert [row.key.tenant_id for row in store.load()] == [2]
    assert [record.tenant_id for record in slots.records()] == [2]
    assert usage.figures(1) == []


def test_deleted_device_begins_anew_also_in_the_file(clock: ManualClock, store: UsageStore) -> None:
    """Figures that were asked for in this run and those that were not; the tenant's own and other devices' stay."""
    mine, unasked = (
        usage_key(1, "dev1", quota, DAY) for quota in (Quota.DEVICE_PUBLISH_MESSAGES, Quota.DEVICE_PUBLISH_BYTES)
    )
    others = [
        KEY,
        usage_key(1, "dev2", Quota.DEVICE_PUBLISH_MESSAGES, DAY),
        usage_key(2, "dev1", Quota.DEVICE_PUBLISH_MESSAGES, DAY),
    ]
    store.write([row(5, key) for key in (mine, unasked, *others)], clock.wall())
    usage = Usage(store, clock)
    held = usage.cell(mine)

    usage.forget_devices(1, {"dev1"})
    Deferred.fromCoroutine(usage.flush(lambda _name, call, *args: succeed(call(*args))))  # type: ignore[arg-type]

    assert held.used == 0
    assert {figure.key: figure.used for figure in store.load()} == {mine: 0, unasked: 0} | dict.fromkeys(others, 5)


def test_usage_is_read_while_it_is_used(tmp_path: Path, clock: ManualClock, store: UsageStore) -> None:
    """The slots have what the database lacks; what has ended, is no such file or cannot be read says nothing."""
    files = tmp_path / "usage.db", tmp_path / "usage.map"
    assert read_usage(tmp_path / "none.db", files[1], clock.wall()) == []
    store.write([row(5), row(3, usage_key(2, "", Quota.PUBLISH_MESSAGES, DAY), MIDNIGHT - DAY)], MIDNIGHT - DAY)
    assert read_usage(*files, clock.wall()) == [row(5)]
    slots = SlotFile(files[1])
    usage = Usage(store, clock, slots)
    usage.cell(KEY).add(4)
    assert read_usage(*files, clock.wall()) == [row(9)]
    usage.close()
    files[0].write_bytes(b"no database at all, and long enough to be taken for one" * 100)

    assert read_usage(*files, clock.wall()) == []


def test_what_others_used_before_counts_in_its_window(clock: ManualClock, store: UsageStore) -> None:
    """Workers that are no more had used a part of the day; the next day begins at 0."""
    usage = Usage(store, clock, before=[row(5), row(7), row(90, start=MIDNIGHT - DAY)])

    cell = usage.cell(KEY)

    assert (cell.used, cell.elsewhere) == (0, 12)
    clock.advance(DAY)
    assert usage.cell(KEY).elsewhere == 0


def test_what_others_used_before_is_counted_once_however_often_this_one_starts(
    clock: ManualClock, tmp_path: Path
) -> None:
    """It stays in their files, and what this one writes of its own does not have it."""
    files, used = (tmp_path / "usage.db", tmp_path / "usage.map"), []
    for _ in range(3):
        store = UsageStore(files[0], clock, lambda *_: None)
        usage = Usage(store, clock, SlotFile(files[1]), before=[row(5), row(7)])
        cell = usage.cell(KEY)
        cell.add(2)
        used.append((cell.used, cell.elsewhere))
        usage.close()

    assert used == [(2, 12), (4, 12), (6, 12)]
    assert read_usage(*files, clock.wall()) == [row(6)]


@pytest.mark.parametrize("by", ["device", "tenant"])
def test_what_others_used_before_ends_with_the_device_or_tenant(clock: ManualClock, store: UsageStore, by: str) -> None:
    """Another device may get the name, and nobody has asked for the counter in this process yet."""
    mine = usage_key(1, "dev1", Quota.PUBLISH_MESSAGES, DAY)
    other = usage_key(2, "dev1", Quota.PUBLISH_MESSAGES, DAY)
    usage = Usage(store, clock, before=[row(5, mine), row(7, other)])

    if by == "device":
        usage.forget_devices(1, {"dev1"})
    else:
        usage.forget_tenant(1)

    assert (usage.cell(mine).elsewhere, usage.cell(other).elsewhere) == (0, 7)
