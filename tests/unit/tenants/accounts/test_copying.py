"""A copy of all accounts into another database: equal, resumable, refused where it would mix or miss something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from iothub.base.errors import ConflictError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import copying, devices, installations, plans, tenants
from iothub_tenants.accounts.copying import How, copy_accounts
from iothub_tenants.accounts.database import open_engine, sqlite_url
from iothub_tenants.accounts.generator import BlockSource
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import device, usage_hour

PEPPER = b"p" * 32


class Killed(Exception):  # noqa: N818  what stands for a kill -9
    """The process ends here."""


@pytest.fixture
def source(tmp_path: Path) -> Iterator[AccountStore]:
    """A tenant with some devices, and one that was deleted: its id must not come back."""
    with closing(init_store(sqlite_url(tmp_path / "source.db"), pepper=PEPPER, clock=ManualClock())) as store:
        tenants.create(store, "acme")
        for number in range(7):
            devices.create(store, "acme", f"dev{number}")
        devices.delete(store, "acme", "dev6")
        yield store


@pytest.fixture
def target_url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "target.db")


def _devices(store: AccountStore) -> int:
    with store.read() as connection:
        return int(connection.execute(select(func.count()).select_from(device)).scalar_one())


def test_copy_is_equal_and_of_the_same_installation(source: AccountStore, target_url: str) -> None:
    """With the ids that were deleted not to be issued again, and queue ids that go on."""
    block = BlockSource(source).allocate()

    copied = copy_accounts(source.url, target_url)

    assert copied.rows["device"] == 6
    assert copied.how is How.AT_ONCE
    with closing(AccountStore(target_url, pepper=PEPPER)) as target:
        assert installations.own(target) == installations.own(source) == copied.installation
        assert devices.show(target, "acme", "dev1") == devices.show(source, "acme", "dev1")
        devices.create(target, "acme", "dev7")
        with target.read() as connection:
            assert connection.execute(select(func.max(device.c.id))).scalar_one() == 8
        assert BlockSource(target).allocate() > block


def test_plans_are_copied_with_what_they_inherit_from(source: AccountStore, target_url: str) -> None:
    """Also one that comes before its parent in the order of the copy."""
    plans.create(source, "a", "connections=3")

    copy_accounts(source.url, target_url)

    with closing(AccountStore(target_url, pepper=PEPPER)) as target:
        assert plans.list_all(target) == plans.list_all(source)
        assert plans.show(target, "a").parent == "standard"


def test_copy_that_was_cut_short_is_used_by_nobody_and_goes_on(
    source: AccountStore, target_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was, not from the beginning."""
    monkeypatch.setattr(copying, "BATCH", 2)
    progress: list[tuple[int, int]] = []

    def die(done: int, of: int) -> None:
        progress.append((done, of))
        if len(progress) == 8:
            raise Killed

    with pytest.raises(Killed):
        copy_accounts(source.url, target_url, die)
    with pytest.raises(ConflictError, match="unfinished copy: run the same `db copy --to-url-file` again"):
        AccountStore(target_url)
    first = progress[-1][0]
    progress.clear()

    copied = copy_accounts(source.url, target_url, lambda done, of: progress.append((done, of)))

    assert copied.how is How.RESUMED
    assert progress[0][0] == first + 2 or progress[0][0] == first + 1
    assert progress[-1][0] == progress[-1][1]
    with closing(AccountStore(target_url)) as target:
        assert _devices(target) == 6


def test_comparison_is_told_as_it_goes(source: AccountStore, target_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads as much again as the copy did, on both sides: silent it would look like a copy that hangs."""
    monkeypatch.setattr(copying, "BATCH", 2)
    progress: list[tuple[int, int]] = []

    copied = copy_accounts(source.url, target_url, on_compared=lambda done, of: progress.append((done, of)))

    rows = 2 * sum(copied.rows.values())
    assert (progress[0], progress[-1]) == ((0, rows), (rows, rows))
    assert progress == sorted(progress)
    assert max(later - done for (done, _), (later, _) in pairwise(progress)) == 2


def test_source_that_changed_between_two_runs_is_copied_from_the_beginning(
    source: AccountStore, target_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the first run are not those of the second."""
    monkeypatch.setattr(copying, "BATCH", 2)

    def die(done: int, of: int) -> None:
        if done > of / 2:
            raise Killed

    with pytest.raises(Killed):
        copy_accounts(source.url, target_url, die)
    devices.delete(source, "acme", "dev0")
    tenants.create(source, "beta")

    copied = copy_accounts(source.url, target_url)

    assert copied.rows["tenant"] == 2
    with closing(AccountStore(target_url)) as target:
        assert _devices(target) == 5


def _fill_hours(store: AccountStore, tenant_ids: Iterable[int], hours: Iterable[int]) -> None:
    figures = {column.name: 0 for column in usage_hour.columns}
    rows = [{**figures, "tenant_id": number, "hour_ms": hour} for number in tenant_ids for hour in hours]
    with store.write() as writer:
        writer.connection.execute(usage_hour.insert(), rows)


def test_rows_that_came_before_others_between_two_runs_do_not_stand_in_the_way(
    source: AccountStore, target_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub has run in between: by place, what was copied comes again."""
    monkeypatch.setattr(copying, "BATCH", 2)
    _fill_hours(source, range(1, 4), range(4))

    def die(done: int, of: int) -> None:
        if done == of - 2:  # usage is copied last
            raise Killed

    with pytest.raises(Killed):
        copy_accounts(source.url, target_url, die)
    _fill_hours(source, range(1, 4), range(4, 6))

    copied = copy_accounts(source.url, target_url)

    assert copied.how is How.BEGUN_ANEW
    assert copied.rows["usage_hour"] == 18


def test_queue_ids_that_a_hub_takes_meanwhile_are_noticed(source: AccountStore, target_url: str) -> None:
    """The target would give them out again."""

    def take(_done: int, _of: int) -> None:
        BlockSource(source).allocate()

    with pytest.raises(ConflictError, match="stop every hub and command"):
        copy_accounts(source.url, target_url, take)


def test_accounts_of_a_later_program_are_not_copied(source: AccountStore, target_url: str) -> None:
    """This one does not know all that they have."""
    with source.write() as writer:
        writer.connection.execute(text("UPDATE schema_info SET value = value + 1 WHERE name = 'version'"))

    with pytest.raises(ConflictError, match="a newer program"):
        copy_accounts(source.url, target_url)


def test_target_whose_tables_were_made_by_half_is_taken(source: AccountStore, target_url: str) -> None:
    """MariaDB keeps what a run that was killed has made."""
    engine = open_engine(target_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
    engine.dispose()

    assert copy_accounts(source.url, target_url).rows["tenant"] == 1


def test_source_that_changes_meanwhile_is_noticed(source: AccountStore, target_url: str) -> None:
    """A hub was not stopped: what it wrote would be missing."""
    with (
        closing(AccountStore(source.url, pepper=PEPPER)) as hub,
        pytest.raises(ConflictError, match="stop every hub and command"),
    ):
        copy_accounts(source.url, target_url, lambda done, of: tenants.create(hub, f"late-{done}"))

    with pytest.raises(ConflictError, match="unfinished copy"):
        AccountStore(target_url)


def test_target_with_accounts_is_refused(source: AccountStore, target_url: str) -> None:
    """They are somebody's, and tenants' numbers would meet; a finished copy is such a target, too."""
    with closing(init_store(target_url, pepper=PEPPER)) as other:
        tenants.create(other, "theirs")

        with pytest.raises(ConflictError, match=r"has accounts already \(tenants: 1\)"):
            copy_accounts(source.url, target_url)

        with other.read() as connection:
            assert connection.execute(text("SELECT name FROM tenant")).scalars().all() == ["theirs"]


def test_target_that_was_only_initialised_is_taken(source: AccountStore, target_url: str) -> None:
    """`init` may have been run on it; its plans and its id are not the source's."""
    init_store(target_url, pepper=PEPPER).close()

    assert copy_accounts(source.url, target_url).rows["tenant"] == 1
