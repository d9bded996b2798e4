"""The table of the hubs that share stores: one hub per number, a counter that only it moves, one form of gone, one successor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.hubs import CUT_OFF, EVICTED, JOINING, LEFT, NOBODY, SILENT, UP, HubRow
from iothub_tenants.accounts.store import AccountStore


@pytest.fixture
def store(url: str) -> Iterator[AccountStore]:
    """On the system's clock."""
    opened = AccountStore(url)
    yield opened
    opened.close()


def begin(store: AccountStore, number: int = 1, before: HubRow | None = None) -> HubRow:
    row = hubs.begin(store, number, f"hub-{number}", before)
    assert row is not None
    return row


def rows(store: AccountStore) -> list[HubRow]:
    return hubs.read(store).rows


def version(store: AccountStore) -> int:
    return hubs.read(store).version


def test_accounts_in_a_file_have_no_clock_of_their_own(store: AccountStore) -> None:
    """It would be that of the hub's machine."""
    assert hubs.server_clock(store) is None


def test_hub_begins_once_and_its_successor_has_a_higher_incarnation(store: AccountStore) -> None:
    """Who has not seen the newest row of its number does not begin."""
    first = begin(store)
    before = version(store)

    second = begin(store, before=first)

    assert hubs.begin(store, 1, "other", first) is None
    assert second.incarnation > first.incarnation
    assert rows(store) == [second]
    assert (second.state, version(store)) == (JOINING, before + 1)


def test_beat_moves_the_own_counter_alone(store: AccountStore) -> None:
    one, two = begin(store, 1), begin(store, 2)

    after = hubs.heartbeat(store, 1, one.incarnation, links=3)
    assert [(row.number, row.heartbeat, row.links) for row in after.rows] == [(1, 2, 3), (2, 1, 0)]

    hubs.heartbeat(store, 2, two.incarnation - 1)
    assert [row.heartbeat for row in rows(store)] == [2, 1]


def test_successor_is_one_and_only_of_an_unchanged_counter(store: AccountStore) -> None:
    first = begin(store)
    hubs.heartbeat(store, 1, first.incarnation)
    moved = rows(store)[0]

    assert not hubs.take_over(store, first, 2)
    assert hubs.take_over(store, moved, 2)
    assert not hubs.take_over(store, moved, 3)
    assert rows(store)[0].successor == 2


def test_start_that_goes_on_is_its_own_successor(store: AccountStore) -> None:
    """While a store held it up, another hub did what was due for the sessions of its earlier run."""
    first = begin(store)
    assert hubs.take_over(store, first, 2)

    hubs.heartbeat(store, 1, first.incarnation)

    assert rows(store)[0].successor == NOBODY


def test_hub_that_is_gone_stays_gone(store: AccountStore) -> None:
    """Its counter moves no longer, it cannot leave, it serves nobody, and it declares nobody gone."""
    one, two = begin(store, 1), begin(store, 2)
    seen = version(store)
    assert hubs.declare_gone(store, 1, one.incarnation, (2, two.incarnation), CUT_OFF, seen)
    seen = version(store)

    hubs.heartbeat(store, 2, two.incarnation)
    hubs.leave(store, 2, two.incarnation)

    row = rows(store)[1]
    assert (row.heartbeat, row.is_gone, row.gone_by, row.gone_why) == (1, True, 1, CUT_OFF)
    assert not hubs.set_up(store, 2, two.incarnation, seen)
    assert not hubs.declare_gone(store, 2, two.incarnation, (1, one.incarnation), CUT_OFF, seen)
    assert version(store) == seen
    assert not rows(store)[0].is_gone


def test_of_two_hubs_that_declare_each_other_gone_one_is_refused(store: AccountStore) -> None:
    """Both by the same picture: the second one's is out of date."""
    one, two = begin(store, 1), begin(store, 2)
    seen = version(store)

    assert hubs.declare_gone(store, 1, one.incarnation, (2, two.incarnation), SILENT, seen)
    assert not hubs.declare_gone(store, 2, two.incarnation, (1, one.incarnation), SILENT, seen)

    assert [row.is_gone for row in rows(store)] == [False, True]
    assert version(store) == seen + 1


def test_hub_is_up_only_among_those_that_it_has_seen(store: AccountStore) -> None:
    """One that has joined meanwhile may not know it."""
    one = begin(store, 1)
    seen = version(store)
    begin(store, 2)

    assert not hubs.set_up(store, 1, one.incarnation, seen)
    assert rows(store)[0].state == JOINING
    assert hubs.set_up(store, 1, one.incarnation, version(store))
    assert rows(store)[0].state == UP


def test_refused_change_leaves_nothing(store: AccountStore) -> None:
    """Neither the version nor a row."""
    one = begin(store)
    seen = version(store)

    assert not hubs.declare_gone(store, 1, one.incarnation, (7, 1), SILENT, seen)

    assert version(store) == seen


def test_end_is_written(store: AccountStore) -> None:
    first = begin(store)
    before = version(store)

    hubs.leave(store, 1, first.incarnation)
    hubs.leave(store, 1, first.incarnation)

    row = rows(store)[0]
    assert (row.has_left, row.gone_by, row.gone_why, version(store)) == (True, 1, LEFT, before + 1)


def test_hub_that_is_known_to_be_gone_counts_as_evicted(store: AccountStore) -> None:
    """Not one that lives, and not one that has left: nobody waits for that one."""
    one, two, three = begin(store, 1), begin(store, 2), begin(store, 3)
    assert hubs.declare_gone(store, 1, one.incarnation, (2, two.incarnation), SILENT, version(store))
    hubs.leave(store, 3, three.incarnation)
    before = version(store)

    for row in (one, two, three):
        hubs.acknowledge_gone(store, row.number, row.incarnation)

    assert [(row.gone_by, row.gone_why) for row in rows(store)] == [(NOBODY, ""), (1, EVICTED), (3, LEFT)]
    assert version(store) == before


def test_hub_whose_wall_clock_was_set_back_begins_with_a_higher_incarnation(url: str) -> None:
    """The others would refuse it as an earlier one, else."""
    clock = ManualClock()
    store = AccountStore(url, clock=clock)
    first = begin(store)
    clock.jump_wall(-86_400.0)

    second = begin(store, before=first)

    store.close()
    assert second.incarnation == first.incarnation + 1
