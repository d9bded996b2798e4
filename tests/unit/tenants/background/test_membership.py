"""Which hubs share the stores: who is seen to live, who is taken over from, and who may have a node number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from iothub.base.errors import BackendError, ConflictError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore, create_schema
from iothub_tenants.background.membership import GONE_S, UNSEEN_S, Members
from tests.support.control_harness import now


class Hubs:
    """Hubs on one accounts database. `is_away`: the database answers nobody."""

    def __init__(self, store: AccountStore) -> None:
        self.store, self.clock, self.is_away = store, ManualClock(), False
        self.during_pause: Callable[[], None] = lambda: None

    def hub(self, number: int, known: int | None = None) -> Members:
        """Has joined."""
        made = Members(self.store, cast("Any", self.run), self.clock, number, f"hub-{number}")
        now(made.join(known, self.pause))
        return made

    async def run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        if self.is_away:
            raise BackendError("the accounts database failed", retryable=True)
        return call(*args)

    async def pause(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.during_pause()

    def pass_time(self, seconds: float, *living: Members) -> None:
        """Every second those who live look."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            for member in living:
                now(member.refresh())


@pytest.fixture
def among(tmp_path: Path) -> Iterator[Hubs]:
    url = sqlite_url(tmp_path / "accounts.db")
    create_schema(url)
    store = AccountStore(url)
    yield Hubs(store)
    store.close()


def test_hubs_see_each_other_while_both_live(among: Hubs) -> None:
    one, two = among.hub(1), among.hub(2)
    assert not two.is_alone

    among.pass_time(GONE_S * 3, one, two)

    assert (one.living, two.living) == (frozenset({2}), frozenset({1}))
    assert now(one.take_over()) == now(two.take_over()) == {}


def test_silent_hub_is_gone_and_has_one_successor(among: Hubs) -> None:
    """Of two that see it, one takes over; for as long as it was silent."""
    one, two, three = among.hub(1), among.hub(2), among.hub(3)
    among.pass_time(2, one, two, three)
    among.pass_time(GONE_S - 1, two, three)
    assert 1 in two.living
    assert now(two.take_over()) == {}

    among.pass_time(2, two, three)

    assert two.living == frozenset({3})
    assert [list(now(successor.take_over())) for successor in (two, three)] == [[frozenset({1})], []]


def test_hub_that_is_to_be_silent_sees_and_is_not_seen(among: Hubs) -> None:
    """It has a successor like one that is gone, and is there again with its next heartbeat."""
    one, two = among.hub(1), among.hub(2)
    for _ in range(int(GONE_S) + 2):
        among.pass_time(1, two)
        now(one.refresh(is_silent=True))

    assert (one.living, two.living) == (frozenset({2}), frozenset())
    assert list(now(two.take_over())) == [frozenset({1})]
    among.pass_time(1, one, two)
    assert two.living == frozenset({1})
    assert not one.is_replaced


def test_hub_that_deregistered_is_not_waited_for(among: Hubs) -> None:
    """Nobody holds anything back for it; its sessions are taken over when it does not come back."""
    one, two = among.hub(1), among.hub(2)
    now(one.deregister())
    among.pass_time(1, two)
    assert two.is_alone
    assert now(two.take_over()) == {}

    among.pass_time(GONE_S + 1, two)

    assert list(now(two.take_over())) == [frozenset({1})]


def test_successor_of_a_successor_takes_over_both(among: Hubs) -> None:
    """A hub that dies while it takes over leaves both."""
    one, two, three = among.hub(1), among.hub(2), among.hub(3)
    among.pass_time(1, one, two, three)
    among.pass_time(GONE_S + 1, two, three)
    now(two.take_over())

    among.pass_time(GONE_S + 2, three)

    assert list(now(three.take_over())) == [frozenset({1, 2})]


def test_time_without_a_successful_read_is_not_silence(among: Hubs) -> None:
    """The accounts were away for all."""
    one, two = among.hub(1), among.hub(2)
    among.pass_time(2, one, two)
    among.clock.advance(10 * GONE_S)

    now(two.refresh())

    assert two.living == frozenset({1})


def test_hub_that_could_not_read_is_not_alone(among: Hubs) -> None:
    """Somebody may have come since."""
    one = among.hub(1)
    assert one.is_alone
    assert one.alone_until == among.clock.monotonic() + UNSEEN_S
    among.is_away = True
    among.clock.advance(UNSEEN_S + 0.1)

    with pytest.raises(BackendError):
        now(one.refresh())

    assert not one.is_alone


def test_hub_that_was_taken_for_dead_is_there_again(among: Hubs) -> None:
    """Its next heartbeat takes the row back."""
    one, two = among.hub(1), among.hub(2)
    among.pass_time(GONE_S + 2, two)
    assert now(two.take_over())

    among.pass_time(2, one, two)

    assert two.living == frozenset({1})
    assert not one.is_replaced


def test_second_hub_with_a_number_that_lives_is_refused(among: Hubs) -> None:
    """It says who has it."""
    one = among.hub(1)
    among.during_pause = lambda: now(one.refresh())

    with pytest.raises(ConflictError, match=r"node.number 1 belongs to a hub .* \(hub-1\)"):
        among.hub(1)

    assert not one.is_replaced


def test_successor_of_a_dead_hub_waits_until_it_is_surely_dead(among: Hubs) -> None:
    """From the same data directory it need not: the lock says so; nor when the predecessor has deregistered."""
    first = among.hub(1)
    began = among.clock.monotonic()
    second = among.hub(1)
    assert among.clock.monotonic() - began >= GONE_S
    among.pass_time(1, first)
    assert first.is_replaced

    began = among.clock.monotonic()
    third = among.hub(1, known=second.incarnation)
    now(third.deregister())
    among.hub(1)

    assert among.clock.monotonic() == began


def test_who_begins_at_the_same_time_is_refused(among: Hubs) -> None:
    """The row was swapped while its hub was watched."""
    row = hubs.begin(among.store, 1, "hub-1", None)
    assert row is not None
    hubs.end(among.store, 1, row.incarnation)
    late = Members(among.store, cast("Any", among.run), among.clock, 1, "late")

    async def overtaken(_name: str, call: Callable[..., Any], *args: Any) -> Any:
        answer = call(*args)
        if call is hubs.read:
            assert hubs.begin(among.store, 1, "quicker", answer[0]) is not None
        return answer

    late._run = cast("Any", overtaken)
    with pytest.raises(ConflictError):
        now(late.join(None, among.pause))


def test_successor_takes_over_after_a_lost_answer(among: Hubs) -> None:
    """The second of two rows could not be swapped: both count at the next look, and only once."""
    one, two, three = among.hub(1), among.hub(2), among.hub(3)
    among.pass_time(3, one, two, three)
    among.pass_time(GONE_S + 1, one)
    real = one._run
    calls: list[str] = []

    async def run(name: str, call: Callable[..., Any], *args: Any) -> Any:
        calls.append(name)
        if calls.count("members.take_over") == 2 and name == "members.take_over":
            raise BackendError("busy", retryable=True)
        return await real(name, call, *args)

    one._run = cast("Any", run)
    with pytest.raises(BackendError):
        now(one.take_over())
    now(one.refresh())

    assert set(now(one.take_over())) == {frozenset({2}), frozenset({3})}
    among.pass_time(1, one)
    assert now(one.take_over()) == {}


def test_successor_that_starts_again_takes_over_once_more(among: Hubs) -> None:
    """It may have died before it had taken any session."""
    one, two, three = among.hub(1), among.hub(2), among.hub(3)
    among.pass_time(3, one, two, three)
    among.pass_time(GONE_S + 1, one, three)
    now(one.take_over())

    again = among.hub(1, one.incarnation)
    among.pass_time(GONE_S + 2, again, three)

    assert set(now(again.take_over())) == {frozenset({2})}


def test_rows_say_where_the_others_are_reached_and_what_they_run(among: Hubs) -> None:
    """Of this run: a hub that comes back without links is reached nowhere. Who is gone is listed, too."""
    one = among.hub(1)
    two = Members(among.store, cast("Any", among.run), among.clock, 2, "two", "1.2.3")
    now(two.join(None, among.pause, "hub-2:7883"))
    among.pass_time(2, one, two)

    (row,) = one.living_rows()
    assert (row.number, row.name, row.address, row.version) == (2, "two", "hub-2:7883", "1.2.3")
    assert row.incarnation == two.incarnation

    among.pass_time(GONE_S + 1, one)
    again = among.hub(2, known=two.incarnation)
    among.pass_time(GONE_S + 1, one)

    assert one.living_rows() == []
    ((row, is_living),) = one.rows()
    assert (row.incarnation, row.address, row.version, is_living) == (again.incarnation, "", "", False)
