"""Who is declared gone and when, who is up, and until when a hub may route; the schedules are in `tests/simulation/test_membership.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from iothub.peers.link import SILENT_S
from iothub.peers.membership import (
    CUT_OFF,
    CUT_OFF_LOOKS,
    CUT_OFF_S,
    EVICTED,
    GO_ON_S,
    GONE_S,
    JOINING,
    LOOK_S,
    SILENT,
    STILL_S,
    UNLINKED,
    UNLINKED_S,
    UP,
    Change,
    Look,
    MemberRow,
    Membership,
)
from iothub.peers.ports import PeerId
from iothub.testing.clock import ManualClock
from tests.support.in_process.asked_links import AskedLinks

ME, TWO, THREE = PeerId(1, 1), PeerId(2, 1), PeerId(3, 1)


class Links(AskedLinks):
    """Links whose state the test says. `down`: since when; the others are up. `said`: what was asked of them."""

    def __init__(self, clock: ManualClock, *peers: PeerId) -> None:
        super().__init__()
        self.clock, self.peers = clock, list(peers)
        self.down: dict[PeerId, float] = {}
        self.age_s = 0.1

    def linked(self) -> Iterable[PeerId]:
        return self.peers

    def is_linked(self, peer: PeerId) -> bool:
        return peer in self.peers and peer not in self.down

    def down_for(self, peer: PeerId) -> float:
        return self.clock.boottime() - self.down[peer] if peer in self.down else math.inf

    def evidence_age(self, peer: PeerId) -> float:
        return math.inf if peer not in self.peers else self.down_for(peer) if peer in self.down else self.age_s

    def drop(self, peer: PeerId) -> None:
        super().drop(peer)
        self.peers = [each for each in self.peers if each != peer]


class Hub:
    """Hub 1 among others, which looks each second."""

    def __init__(self, *others: PeerId, is_up: bool = True) -> None:
        self.clock = ManualClock()
        self.links = Links(self.clock, *others)
        self.membership = Membership(ME, self.links, self.clock)
        self.rows = {peer: MemberRow(peer, UP, 1, len(others)) for peer in others}
        self.me = MemberRow(ME, UP if is_up else JOINING, 1, 0)
        self.still: set[PeerId] = set()
        self.version = 7

    def change(self, peer: PeerId, **values: object) -> None:
        row = self.rows[peer]
        known = {name: getattr(row, name) for name in MemberRow.__slots__}
        self.rows[peer] = MemberRow(**{**known, **values})  # type: ignore[arg-type]

    def look(self) -> Change | None:
        for peer, row in self.rows.items():
            if peer not in self.still and not row.is_gone:
                self.change(peer, counter=row.counter + 1)
        return self.membership.take_look(Look(self.version, [self.me, *self.rows.values()], self.clock.boottime()))

    def looks(self, seconds: float) -> Change | None:
        """Look each second until something is to be written."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            change = self.look()
            if change is not None:
                return change
        return None

    def cut(self, *peers: PeerId) -> None:
        self.links.down |= dict.fromkeys(peers, self.clock.boottime())


def test_still_counter_alone_is_no_end() -> None:
    """The accounts are away for that hub, and its link works: it is there."""
    hub = Hub(TWO)
    hub.look()
    hub.still.add(TWO)

    assert hub.looks(GONE_S * 3) is None


def test_hub_whose_counter_and_link_stand_still_is_declared_gone() -> None:
    """Muted before it is written, expelled after it, gone on without later."""
    hub = Hub(TWO)
    hub.look()
    hub.still.add(TWO)
    hub.cut(TWO)

    begun = hub.clock.boottime()
    change = hub.looks(GONE_S * 2)

    assert change == Change(7, TWO, SILENT)
    assert hub.clock.boottime() - begun >= CUT_OFF_S
    assert hub.links.said == [("mute", TWO)]
    hub.membership.written(change, is_done=True)
    assert hub.links.said[1:] == [("expel", TWO)]
    assert hub.membership.members() == {TWO}
    hub.clock.advance(GO_ON_S - 0.1)
    hub.membership.pass_time()
    assert hub.membership.is_present(TWO)
    hub.clock.advance(0.2)
    hub.membership.pass_time()
    assert (hub.membership.is_present(TWO), hub.membership.members()) == (False, frozenset())
    assert hub.links.said[2:] == [("drop", TWO)]


def test_refused_change_is_taken_back() -> None:
    hub = Hub(TWO)
    hub.look()
    hub.still.add(TWO)
    hub.cut(TWO)
    change = hub.looks(GONE_S * 2)
    assert change is not None

    hub.membership.written(change, is_done=False)

    assert hub.links.said == [("mute", TWO), ("unmute", TWO)]
    assert hub.look() == change


@pytest.mark.parametrize(("is_gone", "said"), [(True, "expel"), (False, "unmute")])
def test_answer_that_is_lost_is_told_by_the_next_look(is_gone: bool, said: str) -> None:
    """Until then the hub is answered nothing: perhaps it is gone."""
    hub = Hub(TWO)
    hub.look()
    hub.still.add(TWO)
    hub.cut(TWO)
    assert hub.looks(GONE_S * 2) is not None

    del hub.links.down[TWO]
    hub.change(TWO, is_gone=is_gone)
    hub.look()

    assert hub.links.said == [("mute", TWO), (said, TWO)]


def test_time_without_a_look_is_no_stillness() -> None:
    """The accounts may have been away for all hubs; or this one was frozen."""
    hub = Hub(TWO)
    hub.look()
    hub.still.add(TWO)
    hub.cut(TWO)

    hub.clock.advance(GONE_S * 3)

    assert hub.look() is None
    assert hub.membership.still_s(TWO) <= 2.0


def test_hub_that_left_or_was_gone_on_without_before_is_not_waited_for() -> None:
    hub = Hub(TWO)
    hub.look()

    hub.change(TWO, is_gone=True, is_settled=True)
    hub.look()

    assert not hub.membership.is_present(TWO)


def test_of_two_that_are_cut_off_the_one_with_fewer_links_goes() -> None:
    """The same looks at both: hub 3 reaches nobody, or hub 1 does not."""
    for links, expected in ((0, CUT_OFF), (2, None)):
        hub = Hub(TWO, THREE)
        hub.look()
        hub.change(THREE, links=links)
        hub.cut(THREE)
        begun = hub.clock.boottime()

        change = hub.looks(GONE_S * 3)

        assert (None if change is None else change.why) == expected
        if change is not None:
            assert hub.clock.boottime() - begun >= CUT_OFF_LOOKS


def test_of_two_with_as_many_links_the_higher_number_goes() -> None:
    hub = Hub(TWO)
    hub.look()
    hub.change(TWO, links=0)
    hub.cut(TWO)
    assert hub.looks(10) == Change(7, TWO, CUT_OFF)

    other = Membership(TWO, None, hub.clock)
    assert other.links_up() == 0
    hub = Hub(PeerId(0, 1))
    hub.look()
    hub.change(PeerId(0, 1), links=0)
    hub.cut(PeerId(0, 1))
    assert hub.looks(GONE_S * 2) is None


def test_of_two_that_are_cut_off_the_one_whose_counter_stands_still_goes() -> None:
    """Whatever its row says of its links: it was written before."""
    hub = Hub(TWO, THREE)
    hub.look()
    hub.change(THREE, links=9)
    hub.still.add(THREE)
    hub.cut(THREE)

    change = hub.looks(9)

    assert change == Change(7, THREE, SILENT)
    assert hub.membership.still_s(THREE) >= STILL_S


def test_hub_that_joins_expels_nobody_and_is_not_expelled_for_its_links() -> None:
    hub = Hub(TWO, is_up=False)
    hub.look()
    hub.change(TWO, links=0)
    hub.cut(TWO)
    assert hub.looks(GONE_S * 2) is None

    hub = Hub(TWO)
    hub.change(TWO, state=JOINING)
    hub.look()
    hub.cut(TWO)
    assert hub.looks(GONE_S * 2) is None


def test_hub_that_joins_declares_gone_only_where_nobody_else_can() -> None:
    """A member that it reaches decides, for it may hear of the hub."""
    for others in ((TWO,), (TWO, THREE)):
        hub = Hub(*others, is_up=False)
        hub.look()
        hub.still.add(TWO)
        hub.cut(TWO)

        change = hub.looks(GONE_S * 3)

        assert change == (Change(7, TWO, SILENT) if len(others) == 1 else None)


def test_hub_is_up_with_a_link_to_every_member() -> None:
    """Once it is ready, in a look that is still true when it is written; those that join do not count."""
    hub = Hub(TWO, THREE, is_up=False)
    hub.change(THREE, state=JOINING)
    hub.links.peers = []
    assert hub.look() is None
    hub.membership.become_ready()
    assert hub.look() is None

    hub.links.peers = [TWO]
    assert hub.look() == Change(7)
    assert not hub.membership.is_up
    hub.membership.written(Change(7), is_done=False)
    assert not hub.membership.is_up
    hub.membership.written(Change(7), is_done=True)

    assert hub.membership.is_up
    assert hub.look() is None


def test_hub_routes_by_evidence_of_all_or_by_its_look() -> None:
    """Each with its bound; whoever is linked counts, by the rows or not."""
    hub = Hub(TWO, THREE)
    hub.look()
    hub.links.age_s = 0.5
    now = hub.clock.boottime()
    assert hub.membership.routes_until() == now + LOOK_S
    hub.clock.advance(10)
    now = hub.clock.boottime()
    assert hub.membership.routes_until() == now - 0.5 + SILENT_S

    hub.links.peers.append(PeerId(4, 1))
    hub.links.down[PeerId(4, 1)] = now - 5

    assert hub.membership.routes_until() == now - 5 + SILENT_S


def test_hub_may_route_until_that_time() -> None:
    hub = Hub(TWO)
    hub.look()
    hub.cut(TWO)

    hub.clock.advance(LOOK_S - 0.1)
    before = hub.membership.may_route()
    hub.clock.advance(0.1)

    assert (before, hub.membership.may_route()) == (True, False)


def test_hub_with_an_old_look_may_route_by_evidence() -> None:
    hub = Hub(TWO)
    hub.look()
    hub.clock.advance(LOOK_S)

    assert hub.membership.may_route()


def test_fresh_look_lets_route_without_asking_links() -> None:
    """It is asked with each batch of acknowledgements."""
    hub = Hub(TWO, THREE)
    hub.look()
    hub.links.evidence_age = None  # type: ignore[method-assign,assignment]

    assert hub.membership.may_route()


def test_hub_that_is_alone_routes_by_its_look() -> None:
    hub = Hub()
    hub.look()

    assert hub.membership.routes_until() == hub.clock.boottime() + LOOK_S


@pytest.mark.parametrize("how", ["row", "next incarnation", "told"])
def test_hub_that_is_gone_routes_nothing(how: str) -> None:
    hub = Hub(TWO)
    hub.look()

    if how == "told":
        hub.membership.told_gone()
    else:
        is_row = how == "row"
        hub.me = MemberRow(ME if is_row else PeerId(1, 2), UP, 1, 0, is_gone=is_row)
        assert hub.look() is None

    assert (hub.membership.gone, hub.membership.routes_until()) == ("gone", -math.inf)
    assert not hub.membership.may_route()


def test_hub_without_any_link_and_without_a_look_gives_up() -> None:
    """Its clients are served elsewhere; while it can look, or reaches one hub, it waits."""
    hub = Hub(TWO, THREE)
    hub.look()
    hub.cut(TWO, THREE)
    for _ in range(int(LOOK_S + UNLINKED_S - 1)):
        hub.clock.advance(1.0)
        hub.membership.pass_time()
    assert hub.membership.gone == ""

    del hub.links.down[THREE]
    hub.membership.pass_time()
    hub.cut(THREE)
    for _ in range(int(UNLINKED_S - 1)):
        hub.clock.advance(1.0)
        hub.membership.pass_time()
    assert hub.membership.gone == ""

    hub.clock.advance(SILENT_S + 2)
    hub.membership.pass_time()

    assert hub.membership.gone == UNLINKED


def test_next_incarnation_replaces_the_one_before() -> None:
    """Also one that was gone; a row that was read before the peer came again takes nothing back."""
    hub = Hub(TWO)
    hub.look()
    hub.change(TWO, is_gone=True)
    hub.look()

    again = PeerId(2, 2)
    hub.rows = {TWO: MemberRow(again, UP, 1, 1)}
    hub.look()

    assert hub.membership.members() == {again}
    assert not hub.membership.is_present(TWO)
    hub.rows = {TWO: MemberRow(TWO, UP, 9, 1)}
    hub.look()
    assert hub.membership.members() == {again}


def test_hub_without_links_knows_the_others_by_their_rows() -> None:
    """One whose counter stands still is gone, for there is no link to ask."""
    clock = ManualClock()
    membership = Membership(ME, None, clock)
    rows = [MemberRow(ME, UP, 1, 0), MemberRow(TWO, UP, 1, 0)]
    changes = []
    for _ in range(int(GONE_S) + 1):
        changes.append(membership.take_look(Look(1, rows, clock.boottime())))
        clock.advance(1.0)

    assert changes[-1] == Change(1, TWO, SILENT)
    assert set(changes[:-1]) == {None}
    membership.written(Change(1, TWO, SILENT), is_done=True)
    clock.advance(GO_ON_S)
    membership.pass_time()
    assert membership.members() == frozenset()


def test_hub_that_is_evicted_is_gone_as_any_other() -> None:
    """Its counter moves and its link is up: it is answered nothing before that is written, and waited for until it may know."""
    hub = Hub(TWO, THREE)
    hub.look()
    hub.membership.evict(TWO)

    change = hub.look()

    assert change == Change(7, TWO, EVICTED)
    assert hub.links.said == [("mute", TWO)]
    assert not hub.membership.is_gone(TWO)
    hub.membership.written(change, is_done=True)
    assert hub.membership.is_gone(TWO)
    assert hub.membership.is_present(TWO)
    assert hub.look() is None


def test_only_the_incarnation_that_was_named_is_evicted() -> None:
    """The hub has begun again meanwhile."""
    hub = Hub(PeerId(2, 5))
    hub.look()

    hub.membership.evict(TWO)

    assert hub.look() is None
    assert hub.membership.is_gone(TWO)
    assert not hub.membership.is_gone(PeerId(2, 5))
    assert not hub.membership.is_gone(THREE)


def test_hub_that_is_spared_is_not_evicted() -> None:
    """The administrator has had no answer in time."""
    hub = Hub(TWO)
    hub.look()

    hub.membership.evict(TWO)
    hub.membership.spare(TWO)

    assert hub.look() is None


def test_clock_that_jumps_ends_all_evidence_and_declares_nobody_gone() -> None:
    """The machine was suspended: nothing that was known before is of use, and the next look tells."""
    hub = Hub(TWO)
    hub.look()
    assert hub.membership.routes_until() > hub.clock.boottime()

    hub.cut(TWO)
    hub.clock.advance(3600.0)
    hub.membership.pass_time()
    assert hub.membership.routes_until() <= hub.clock.boottime()
    hub.still.add(TWO)

    assert hub.look() is None
    assert hub.membership.gone == ""
    assert hub.membership.routes_until() == hub.clock.boottime() + LOOK_S
