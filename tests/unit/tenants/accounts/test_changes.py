"""The watcher of the change log: every committed change once, in order."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from sqlalchemy import delete, insert

from iothub.testing.clock import ManualClock
from iothub_services.auth.change_watermark import EVERYBODY
from iothub_tenants.accounts import acl_rules, changes, devices, tenants
from iothub_tenants.accounts.changes import Change, ChangeWatcher, PlaceLostError
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import change_log as table


def test_watcher_sees_what_another_process_does(store: AccountStore, url: str, clock: ManualClock) -> None:
    """From its own beginning on, each change once."""
    tenants.create(store, "before")
    watcher = ChangeWatcher(store)
    other = AccountStore(url, pepper=store.pepper, clock=clock)

    created = tenants.create(other, "acme")
    devices.create(other, "acme", "dev1")
    acl_rules.deny(other, "acme", "dev1", "publish", "a")
    acl_rules.deny(other, "acme", "*", "publish", "a")

    found = watcher.poll()
    other.close()
    assert [(change.kind, change.subject) for change in found] == [
        (ChangeKind.TENANT, "acme"),
        (ChangeKind.DEVICE, "dev1"),
        (ChangeKind.ACL, "device:dev1"),
        (ChangeKind.ACL, "*"),
    ]
    assert {change.tenant_id for change in found} == {created.id}
    assert {change.at_ms for change in found} == {store.now_ms()}
    assert watcher.poll() == []


def test_change_of_a_later_program_concerns_the_whole_tenant(store: AccountStore) -> None:
    """Those behind it are read as ever."""
    watcher = ChangeWatcher(store)
    with store.write() as writer:
        row = {"tenant_id": 7, "kind": "teleport", "subject": "x", "at_ms": store.now_ms()}
        writer.connection.execute(insert(table).values(row))
    tenants.create(store, "acme")

    found = watcher.poll()

    assert [change.kind for change in found] == [ChangeKind.UNKNOWN, ChangeKind.TENANT]
    assert changes.device_of(found[0]) is None
    assert watcher.poll() == []


def test_many_changes_come_in_batches(store: AccountStore) -> None:
    """None is skipped at the seam."""
    watcher = ChangeWatcher(store)
    with store.write() as writer:
        for number in range(changes.BATCH + 5):
            writer.changed(0, ChangeKind.PLAN, str(number))

    found = [watcher.poll(), watcher.poll(), watcher.poll()]

    assert [len(batch) for batch in found] == [changes.BATCH, 5, 0]
    assert [change.subject for batch in found for change in batch] == [
        str(number) for number in range(changes.BATCH + 5)
    ]


def test_no_change_is_missed_beside_busy_writers(store: AccountStore, url: str, clock: ManualClock) -> None:
    """Ids become visible in ascending order: what is below the last one seen has been seen."""
    watcher = ChangeWatcher(store)
    writers = [AccountStore(url, clock=clock) for _ in range(2)]
    threads = [threading.Thread(target=_write, args=(writer, name)) for writer, name in zip(writers, "ab", strict=True)]
    for thread in threads:
        thread.start()

    seen: list[str] = []
    while any(thread.is_alive() for thread in threads):
        seen += [change.subject for change in watcher.poll()]
    seen += [change.subject for change in watcher.poll()]

    for writer in writers:
        writer.close()
    assert sorted(seen) == sorted(f"{name}{number}" for name in "ab" for number in range(15))


@pytest.mark.parametrize("is_undone", [False, True])
def test_later_number_is_not_visible_before_an_earlier_one(
    store: AccountStore, url: str, clock: ManualClock, *, is_undone: bool
) -> None:
    """A writer gets no number while another's is not decided; one that was undone leaves a gap that nobody fills."""
    watcher, other = ChangeWatcher(store), AccountStore(url, clock=clock)
    is_writing = threading.Event()
    second = threading.Thread(target=lambda: (is_writing.set(), _write(other, "b", 1)))

    with suppress(_UndoneError), store.write() as writer:
        writer.changed(0, ChangeKind.PLAN, "a0")
        second.start()
        assert is_writing.wait(10)
        assert second.is_alive()
        assert watcher.poll() == []
        if is_undone:
            raise _UndoneError
    seen = watcher.poll()
    second.join()
    seen += watcher.poll()
    with store.write() as writer:
        writer.changed(0, ChangeKind.PLAN, "a1")
    seen += watcher.poll()

    other.close()
    assert [change.subject for change in seen] == (["b0", "a1"] if is_undone else ["a0", "b0", "a1"])


class _UndoneError(Exception):
    """The transaction is given up."""


def _write(store: AccountStore, name: str, count: int = 15) -> None:
    for number in range(count):
        with store.write() as writer:
            writer.changed(0, ChangeKind.PLAN, f"{name}{number}")


def test_old_changes_are_forgotten_and_ids_go_on(store: AccountStore, clock: ManualClock) -> None:
    """A watcher at the end does not notice."""
    watcher = ChangeWatcher(store)
    tenants.create(store, "acme")
    watcher.poll()
    clock.advance(changes.KEEP_S + 1)

    assert changes.trim(store) > 0
    tenants.create(store, "other")

    assert [change.subject for change in watcher.poll()] == ["other"]


def test_last_line_that_a_watcher_read_is_there_when_the_next_one_comes(
    store: AccountStore, clock: ManualClock
) -> None:
    """Nothing was changed for days, then something is, and another hub forgets what is old before this one looks."""
    tenants.create(store, "acme")
    watcher = ChangeWatcher(store)
    clock.advance(changes.KEEP_S * 2)
    tenants.create(store, "other")

    changes.trim(store)

    assert [change.subject for change in watcher.poll()] == ["other"]


def test_watcher_whose_log_was_put_back_says_so(store: AccountStore) -> None:
    """Accounts were restored from a backup under a running hub: what comes now has numbers that it has seen already."""
    tenants.create(store, "acme")
    watcher = ChangeWatcher(store)
    _put_back(store, watcher.after)
    with pytest.raises(PlaceLostError):
        watcher.poll()

    with store.write() as writer:
        writer.connection.execute(insert(table).values(id=watcher.after, tenant_id=1, kind="ban", subject="x", at_ms=1))

    with pytest.raises(PlaceLostError):
        watcher.poll()


def _put_back(store: AccountStore, before: int) -> None:
    with store.write() as writer:
        writer.connection.execute(delete(table).where(table.c.id >= before))


def test_watcher_that_slept_for_longer_than_the_log_reaches_back_says_so(
    store: AccountStore, clock: ManualClock
) -> None:
    """What it has missed was forgotten."""
    watcher = ChangeWatcher(store)
    tenants.create(store, "acme")
    clock.advance(changes.KEEP_S * 2)
    changes.trim(store)

    with pytest.raises(PlaceLostError):
        watcher.poll()


def test_newest_change_is_never_forgotten(store: AccountStore, clock: ManualClock) -> None:
    """How far the log goes is what records in a shared cache are compared with: an empty one would say that nothing ever changed."""
    tenants.create(store, "acme")
    newest = changes.latest(store, 1 << 40)[-1]
    clock.advance(changes.KEEP_S * 10)

    changes.trim(store)

    assert changes.latest(store, 1 << 40) == [newest]


def test_end_of_the_log_is_read_without_a_gap(store: AccountStore) -> None:
    """Up to where the watcher begins, the last ones if there are too many."""
    for name in ("one", "two", "three"):
        tenants.create(store, name)
    everything = changes.latest(store, 1 << 40)

    assert [change.id for change in everything] == sorted(change.id for change in everything)
    assert changes.latest(store, everything[-2].id) == everything[:-1]
    assert changes.latest(store, 1 << 40, most=2) == everything[-2:]
    assert changes.latest(store, 0) == []


@pytest.mark.parametrize(
    ("change", "concerned"),
    [
        (Change(1, 4, ChangeKind.DEVICE, "dev1", 7), (4, "dev1", "")),
        (Change(1, 4, ChangeKind.DEVICE, "*", 7), (4, None, "")),
        (Change(1, 4, ChangeKind.DEVICE_DELETED, "dev1", 7), (4, "dev1", "")),
        (Change(1, 4, ChangeKind.ACL, "device:dev1", 7), (4, "dev1", "")),
        (Change(1, 4, ChangeKind.ACL, "group:dev1", 7), (4, None, "")),
        (Change(1, 4, ChangeKind.QUOTA, "dev1", 7), (4, "dev1", "")),
        (Change(1, 4, ChangeKind.QUOTA, "*", 7), (4, None, "")),
        (Change(1, 4, ChangeKind.BAN, "device:dev1", 7), (4, None, "")),
        (Change(1, 4, ChangeKind.TENANT, "acme", 7), (4, None, "acme")),
        (Change(1, 4, ChangeKind.TOKEN_ISSUER, "issuer", 7), (4, None, "")),
        (Change(1, 0, ChangeKind.PLAN, "standard", 7), (EVERYBODY, None, "")),
    ],
    ids=lambda each: f"{each.kind.value} {each.subject}" if isinstance(each, Change) else "",
)
def test_change_says_whose_records_it_concerns(change: Change, concerned: tuple[int, str | None, str]) -> None:
    """Too many forget too much; too few would grant access."""
    (line,) = changes.lines([change])

    assert line.as_of == (1, 7)
    assert (line.tenant_id, line.device, line.tenant_name) == concerned


def test_deletions_of_devices_can_be_read_again(store: AccountStore) -> None:
    """For a hub that was away: those behind the last change that it has applied."""
    tenant = tenants.create(store, "acme")
    devices.create(store, "acme", "dev1")
    devices.create(store, "acme", "dev2")
    watcher = ChangeWatcher(store)
    devices.delete(store, "acme", "dev1")
    (first,) = watcher.poll()
    devices.delete(store, "acme", "dev2")

    found = changes.deleted_devices(store, 0)

    assert [(change.tenant_id, change.subject) for change in found] == [(tenant.id, "dev1"), (tenant.id, "dev2")]
    assert {change.kind for change in found} == {ChangeKind.DEVICE_DELETED}
    assert [change.subject for change in changes.deleted_devices(store, first.id)] == ["dev2"]
