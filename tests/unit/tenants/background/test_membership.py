"""Which hubs share the stores: who may have a node number, whose rows are read, and who takes over from whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from iothub.base.errors import BackendError, ConflictError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.hubs import SILENT, HubRow
from iothub_tenants.accounts.store import AccountStore, create_schema
from iothub_tenants.background.membership import GONE_S, UNSEEN_S, Members, Standing
from tests.support.in_process.control_harness import now

OVER = Standing(GONE_S, is_over=True)


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

    def row(self, number: int) -> HubRow:
        return next(row for row in hubs.read(self.store).rows if row.number == number)

    def declare_gone(self, member: Members, gone: Members, *seen_by: Members) -> None:
        """Write it, and let those who see it go on without the hub."""
        version = hubs.read(self.store).version
        assert now(member.declare_gone((gone.number, gone.incarnation), SILENT, version))
        for each in seen_by:
            now(each.refresh())
            each.note_standing({gone.number: OVER})


@pytest.fixture
def among(tmp_path: Path) -> Iterator[Hubs]:
    url = sqlite_url(tmp_path / "accounts.db")
    create_schema(url)
    store = AccountStore(url)
    yield Hubs(store)
    store.close()


def test_hubs_see_each_other(among: Hubs) -> None:
    one, two = among.hub(1), among.hub(2)
    assert not two.is_alone

    among.pass_time(GONE_S * 3, one, two)

    assert (one.living, two.living) == (frozenset({2}), frozenset({1}))
    assert now(one.take_over()) == now(two.take_over()) == {}


def test_hub_that_is_gone_has_one_successor(among: Hubs) -> None:
    """Of two that see it, one takes over; for as long as it was silent."""
    one, two, three = among.hub(1), among.hub(2), among.hub(3)
    among.declare_gone(two, one, two, three)

    assert two.living == frozenset({3})
    assert [now(successor.take_over()) for successor in (two, three)] == [{frozenset({1}): GONE_S}, {}]
    assert now(two.take_over()) == {}


def test_hub_that_is_waited_for_is_not_taken_over_from(among: Hubs) -> None:
    """It is gone by its row, and may still acknowledge for a moment: it is present, and it lives, until this hub goes on without it."""
    one, two = among.hub(1), among.hub(2)
    among.declare_gone(two, one)
    now(two.refresh())
    two.note_standing({1: Standing()})

    assert now(two.take_over()) == {}
    assert [row.number for row in two.present_rows()] == [1]

    two.note_standing({1: OVER})

    assert (two.present_rows(), list(now(two.take_over()))) == ([], [frozenset({1})])


def test_hub_that_is_gone_at_the_first_look_does_not_live(among: Hubs) -> None:
    """Before anybody has judged: a start must not wait for it."""
    one, two = among.hub(1), among.hub(2)
    now(one.deregister())

    three = among.hub(3)

    assert three.living == frozenset({two.number})


def test_hub_that_is_to_be_silent_sees_and_is_not_seen(among: Hubs) -> None:
    """While a store holds its start up, it has nothing to say."""
    one, two = among.hub(1), among.hub(2)
    before = among.row(1).heartbeat

    now(one.refresh(is_silent=True))
    assert among.row(1).heartbeat == before
    assert one.living == {2}

    now(one.refresh(links=2))
    assert (among.row(1).heartbeat, among.row(1).links) == (before + 1, 2)
    assert two.living == {1}


def test_silent_start_is_taken_over_from_and_lives_again_with_its_next_heartbeat(among: Hubs) -> None:
    one, two = among.hub(1), among.hub(2)
    two.note_standing({1: Standing(GONE_S, is_silent=True)})
    assert two.living == frozenset()
    assert list(now(two.take_over())) == [frozenset({1})]

    now(one.refresh())
    now(two.refresh())
    two.note_standing({1: Standing()})

    assert two.living == frozenset({1})
    assert now(two.take_over()) == {}


def test_successor_of_a_successor_takes_over_both(among: Hubs) -> None:
    one, two, three = among.hub(1), among.hub(2), among.hub(3)
    among.declare_gone(two, one, two, three)
    now(two.take_over())
    among.declare_gone(three, two, three)

    assert list(now(three.take_over())) == [frozenset({1, 2})]


def test_hub_that_could_not_read_is_not_alone(among: Hubs) -> None:
    """Somebody may have come."""
    one = among.hub(1)
    assert one.is_alone

    among.is_away = True
    among.clock.advance(UNSEEN_S + 0.1)
    with pytest.raises(BackendError):
        now(one.refresh())

    assert not one.is_alone


def test_second_hub_with_a_number_that_lives_is_refused(among: Hubs) -> None:
    one = among.hub(1)
    among.during_pause = lambda: now(one.refresh())

    with pytest.raises(ConflictError, match="belongs to a hub that runs"):
        among.hub(1)

    now(one.refresh())
    assert not one.is_replaced


def test_successor_of_a_dead_hub_waits_until_it_is_surely_dead(among: Hubs) -> None:
    """Unless it comes with the same data directory, whose lock it has, or the dead one is gone by its row."""
    one = among.hub(1)
    begun = among.clock.monotonic()
    two = among.hub(1)
    waited_s = among.clock.monotonic() - begun
    assert waited_s >= GONE_S

    begun = among.clock.monotonic()
    three = among.hub(1, two.incarnation)
    now(three.deregister())
    among.hub(1)

    assert among.clock.monotonic() == begun
    now(one.refresh())
    assert one.is_replaced


def test_hub_that_is_gone_while_its_number_is_watched_is_replaced(among: Hubs) -> None:
    """The others have said what the watching was for."""
    one, two = among.hub(1), among.hub(2)
    waited: list[float] = []

    def declare() -> None:
        waited.append(among.clock.monotonic())
        if len(waited) == 2:
            among.declare_gone(two, one)

    among.during_pause = declare

    again = among.hub(1)

    assert (len(waited), again.incarnation > one.incarnation, among.row(1).is_gone) == (2, True, False)


def test_who_begins_at_the_same_time_is_refused(among: Hubs) -> None:
    """Both have seen the same dead hub; the database lets one pass."""
    among.hub(1)
    late = Members(among.store, cast("Any", among.run), among.clock, 1, "late")
    quick: list[Members] = []

    def overtake() -> None:
        if not quick and among.clock.monotonic() - begun >= GONE_S:
            row = among.row(1)
            assert hubs.begin(among.store, 1, "quick", row) is not None
            quick.append(late)

    begun = among.clock.monotonic()
    among.during_pause = overtake

    with pytest.raises(ConflictError):
        now(late.join(None, among.pause))


def test_successor_takes_over_after_a_lost_answer(among: Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in the row, and nobody else will."""
    one, two = among.hub(1), among.hub(2)
    among.declare_gone(two, one, two)
    run = two._run

    async def lose(name: str, call: Callable[..., Any], *args: Any) -> Any:
        answer = await run(name, call, *args)
        if name == "members.take_over":
            raise BackendError("the answer is lost", retryable=True)
        return answer

    monkeypatch.setattr(two, "_run", lose)
    with pytest.raises(BackendError):
        now(two.take_over())
    monkeypatch.undo()

    now(two.refresh())
    two.note_standing({1: OVER})

    assert list(now(two.take_over())) == [frozenset({1})]


def test_successor_that_starts_again_takes_over_once_more(among: Hubs) -> None:
    """It may have died before it had done everything."""
    one, two = among.hub(1), among.hub(2)
    among.declare_gone(two, one, two)
    assert list(now(two.take_over())) == [frozenset({1})]

    again = among.hub(2, two.incarnation)
    again.note_standing({1: OVER})

    assert list(now(again.take_over())) == [frozenset({1})]
    assert now(again.take_over()) == {}


def test_hub_that_leaves_is_gone_by_its_own_word(among: Hubs) -> None:
    one, two = among.hub(1), among.hub(2)

    now(one.deregister())
    now(two.refresh())

    assert [(row.has_left, row.gone_by) for row, _ in two.rows()] == [(True, 1)]


def test_hub_is_up_unless_somebody_has_come(among: Hubs) -> None:
    one = among.hub(1)
    seen = one.view.version
    among.hub(2)

    assert not now(one.set_up(seen))
    assert now(one.set_up(hubs.read(among.store).version))
    assert among.row(1).state == "up"


def test_rows_say_where_the_others_are_reached_and_what_they_run(among: Hubs) -> None:
    one = among.hub(1)
    two = Members(among.store, cast("Any", among.run), among.clock, 2, "two", "1.2.3")
    now(two.join(None, among.pause, "hub-2:7883"))

    now(one.refresh())

    assert [(row.address, row.version) for row in one.present_rows()] == [("hub-2:7883", "1.2.3")]
    assert one.names == {2: "two"}
