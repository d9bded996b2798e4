"""The table of the hubs that share stores: one hub per number, a counter that only it moves, one heir."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.hubs import NOBODY, HubRow
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


def test_hub_begins_once_and_its_successor_has_a_higher_incarnation(store: AccountStore) -> None:
    """Who has not seen the newest row of its number does not begin."""
    first = begin(store)
    assert hubs.begin(store, 1, "late", None) is None

    second = begin(store, before=first)

    assert second.incarnation > first.incarnation
    assert hubs.read(store) == [second]


def test_beat_moves_the_own_counter_alone(store: AccountStore) -> None:
    """And tells of everybody."""
    one, two = begin(store, 1), begin(store, 2)

    rows = hubs.beat(store, 1, one.incarnation)

    assert [(row.number, row.beat) for row in rows] == [(1, one.beat + 1), (2, two.beat)]
    assert hubs.beat(store, 2, two.incarnation - 1)[1] == two


def test_heir_is_one_and_only_of_a_counter_that_stands_still(store: AccountStore) -> None:
    """Compare-and-swap on what was seen."""
    gone = begin(store, 1)
    assert hubs.inherit(store, gone, 2)
    assert not hubs.inherit(store, gone, 3)
    assert hubs.read(store)[0].heir == 2

    alive = begin(store, 5)
    hubs.beat(store, 5, alive.incarnation)
    assert not hubs.inherit(store, alive, 2)


def test_hub_that_was_taken_for_dead_lives_by_its_next_beat(store: AccountStore) -> None:
    """Its sessions tell from the log who has them; the row is its own again."""
    row = begin(store)
    hubs.inherit(store, row, 2)

    after = hubs.beat(store, 1, row.incarnation)[0]

    assert (after.heir, after.is_over) == (NOBODY, False)


def test_goodbye_is_noted(store: AccountStore) -> None:
    row = begin(store)

    hubs.end(store, 1, row.incarnation)

    assert hubs.read(store)[0].is_over
