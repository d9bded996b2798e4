"""The table of the hubs that share stores: one hub per number, a counter that only it moves, one successor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.hubs import NO_SUCCESSOR, HubRow
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

    rows = hubs.heartbeat(store, 1, one.incarnation)

    assert [(row.number, row.heartbeat) for row in rows] == [(1, one.heartbeat + 1), (2, two.heartbeat)]
    assert hubs.heartbeat(store, 2, two.incarnation - 1)[1] == two


def test_successor_is_one_and_only_of_an_unchanged_counter(store: AccountStore) -> None:
    """Compare-and-swap on what was seen."""
    gone = begin(store, 1)
    assert hubs.take_over(store, gone, 2)
    assert not hubs.take_over(store, gone, 3)
    assert hubs.read(store)[0].successor == 2

    alive = begin(store, 5)
    hubs.heartbeat(store, 5, alive.incarnation)
    assert not hubs.take_over(store, alive, 2)


def test_hub_that_was_taken_for_dead_lives_by_its_next_heartbeat(store: AccountStore) -> None:
    """Its sessions tell from the log who has them; the row is its own again."""
    row = begin(store)
    hubs.take_over(store, row, 2)

    after = hubs.heartbeat(store, 1, row.incarnation)[0]

    assert (after.successor, after.is_over) == (NO_SUCCESSOR, False)


def test_deregistration_is_written(store: AccountStore) -> None:
    row = begin(store)

    hubs.end(store, 1, row.incarnation)

    assert hubs.read(store)[0].is_over
