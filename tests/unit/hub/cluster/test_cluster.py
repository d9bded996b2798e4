"""A hub among others: what it waits for when it starts and when clients subscribe (`iothub.hub.cluster.cluster`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, UnavailableError
from iothub.hub.cluster.cluster import CATCH_UP_S
from iothub.peers.membership import LOOK_S
from iothub_services.events.follower import ALONE_S, PERIOD_S
from iothub_services.sessions.port import HERE
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.hubs import NOBODY, SILENT
from iothub_tenants.background.membership import GONE_S, Standing
from tests.support.in_process.clustered_hub import Node, other, rows
from tests.support.in_process.control_harness import now


def test_hub_that_is_alone_waits_for_nothing(node: Node) -> None:
    """It opens at once; it may route as long as it has looked for others."""
    node.links = None
    assert node.begin() == [None]

    assert node.stores.is_alone
    assert node.stores.settle(7, (1,)) is None
    assert node.plane.turn.held_at == node.clock.monotonic() + LOOK_S
    assert (node.follower.after, node.follower.period_s, node.shared[-1]) == ((7,), ALONE_S, False)
    place = node.stores.place(5)
    assert place is not None
    assert (place.holder, place.logged_epoch) == (HERE, 5)
    assert node.notes == [node.stores.members.incarnation]
    assert node.members.signature() == f"1.{node.stores.members.incarnation}"


def test_hub_opens_when_it_is_linked_to_the_others_and_has_the_log(node: Node) -> None:
    """Both, and no sooner."""
    two, links = other(node), node.links
    assert links is not None
    links.are_down = True
    opened = node.begin()
    node.pass_time(3, two)
    assert opened == []
    links.are_down = False
    node.pass_time(0.2, two)
    assert (opened, len(node.follower.waiting)) == ([], 1)

    node.follower.round()

    assert opened == [None]
    assert (node.follower.period_s, node.shared[-1]) == (PERIOD_S, True)


def test_hub_that_joins_names_the_hubs_that_it_waits_for(node: Node) -> None:
    """Where everybody who asks reads it: `/readyz` and, before it takes commands, `iothub status`."""
    two, links = other(node), node.links
    assert links is not None
    links.are_down, links.troubles[2] = True, "certificate_refused: unknown ca"
    node.begin()
    node.pass_time(3, two)
    assert (
        node.waiting.reason
        == "it serves clients when it is linked to every hub that does: hub-2 (2): certificate_refused: unknown ca"
    )

    links.troubles.clear()
    node.pass_time(0.2, two)
    assert node.waiting.reason.endswith(": hub-2 (2): no link yet")

    links.are_down = False
    node.pass_time(0.2, two)
    assert node.waiting.reason == "sessions are being loaded from the session log"


def test_hub_that_starts_with_a_wrong_clock_says_so(node: Node) -> None:
    other(node)
    assert node.links is not None
    node.links.has_wrong_clock, node.links.clock_fault = True, "clock_wrong: 60 s ahead"

    node.begin()

    assert node.waiting.reason == "clock_wrong: 60 s ahead"


def test_hub_whose_clock_is_wrong_recovers_no_session_and_serves_nobody_until_it_is_right(node: Node) -> None:
    """What it recovers has deadlines of wall time."""
    two, links = other(node), node.links
    assert links is not None
    links.has_wrong_clock = True
    opened = node.begin()
    node.pass_time(3, two)
    assert (opened, node.follower) == ([], None)
    assert rows(node)[0].state == "joining"
    links.has_wrong_clock = False
    node.pass_time(0.2, two)
    node.follower.round()
    node.pass_time(0.2, two)

    assert opened == [None]


def test_hub_whose_clock_is_wrong_by_the_hub_that_came_up_first_stays_joining(node: Node) -> None:
    """It was right for all that it knew before; as soon as its row would say that it is up, the other one's clock counts."""
    links = node.links
    assert links is not None
    opened: list[object] = []
    now(node.stores.join())
    other(node)
    links.has_wrong_clock = True
    node.pass_time(0.2)

    Deferred.fromCoroutine(node.stores._heartbeat.be_up()).addBoth(opened.append)
    node.pass_time(1)

    assert (opened, rows(node)[0].state, links.serves) == ([], "joining", False)
    links.has_wrong_clock = False
    node.pass_time(1.2)
    assert (opened, rows(node)[0].state, links.serves) == ([None], "up", True)


def test_where_hubs_that_start_differ_the_server_of_the_accounts_is_asked_for_its_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the hubs agree, and nothing is noted where the accounts are a file."""
    times: list[float | None] = [None, 1234.5]
    monkeypatch.setattr(hubs, "server_clock", lambda _store: times.pop(0))
    links = node.links
    assert links is not None
    node.begin()
    node.pass_time(3)
    assert len(times) == 2
    links.needs_third_clock = True

    while times:
        assert links.third_clocks == []
        node.pass_time(0.1)

    assert links.third_clocks == [1234.5]
    links.needs_third_clock = False


def test_hub_that_is_stopped_while_its_clock_is_wrong_recovers_nothing(node: Node) -> None:
    other(node)
    assert node.links is not None
    node.links.has_wrong_clock = True
    opened = node.begin()

    now(node.stores.stop_following())
    node.pass_time(0.2)

    assert [str(failure.value) for failure in cast("Any", opened)] == ["the hub stops"]


def test_hub_that_is_linked_is_not_alone_before_it_has_seen_the_others_row(node: Node) -> None:
    """A hub that joins serves its clients as soon as it is linked; here its events are followed by then."""
    node.begin()
    node.follower.round()
    assert node.stores.is_alone
    assert node.links is not None

    node.links.seen = [(2, "hub-2:7883")]
    node.stores.peers_changed()
    assert not node.stores.is_alone
    assert (node.follower.period_s, node.shared[-1]) == (PERIOD_S, True)

    node.links.seen = []
    node.clock.advance(0.1)
    node.stores.peers_changed()
    assert not node.stores.is_alone  # what it has said last is not known yet
    node.follower.round()
    assert node.stores.is_alone


def test_start_waits_visibly_for_a_log_that_cannot_be_followed(node: Node) -> None:
    """With a reason; it goes on when the log is there again, and opens when it has its heartbeat again."""
    two = other(node)
    opened = node.begin()
    node.pass_time(0.5 + CATCH_UP_S + 0.2, two)
    assert (opened, node.waiting.reason) == (
        [],
        "waiting for the session log: the session log could not be followed in time",
    )

    node.follower.waiting.clear()  # what was given up
    node.pass_time(1.5, two)
    node.follower.round()

    assert (opened, node.waiting.reason) == ([], "")

    node.pass_time(2.5, two)
    node.follower.round()
    assert (opened, node.waiting.reason) == ([None], "")


def test_start_that_a_store_holds_up_is_silent_until_it_goes_on(node: Node) -> None:
    """So another hub takes over the sessions of its earlier run. It sees the others meanwhile, and opens when they have seen it again."""
    two = other(node)
    peers, answers = now(node.stores.join()), [UnavailableError("away")] * 15

    async def work() -> None:
        if answers:
            raise answers.pop()

    def heartbeat() -> int:
        return next(row.heartbeat for row in rows(node) if row.number == 1)

    Deferred.fromCoroutine(node.waiting.until_loaded("the stores", work))
    before = heartbeat()
    node.pass_time(GONE_S + 2, two)
    assert heartbeat() == before
    two.note_standing({1: Standing(GONE_S, is_silent=True)})
    assert now(two.take_over()) == {frozenset({1}): GONE_S}
    assert peers.joined() == {2}

    node.pass_time(5, two)
    opened: list[object] = []
    Deferred.fromCoroutine(node.stores.open((7,))).addBoth(opened.append)
    node.pass_time(2, two)
    assert rows(node)[0].successor == NOBODY
    node.follower.round()
    assert opened == [None]
    assert rows(node)[0].state == "up"


def test_start_remembers_who_came_while_it_was_loading(node: Node) -> None:
    """Also when they have left again: what they began is theirs."""
    peers = now(node.stores.join())
    assert not peers.exist
    two = other(node)
    node.pass_time(2, two)
    assert (peers.living, peers.joined()) == (frozenset(), {2})

    now(two.deregister())
    node.pass_time(2)

    assert node.members.living == frozenset()
    assert peers.exist


def test_subscription_settles_when_the_others_know_it(node: Node) -> None:
    node.begin()
    settled = node.stores.settle(7, (4, 2))
    assert settled is not None
    [(tenant_id, place, on_done)] = node.known.waiting
    assert (tenant_id, place, settled.called) == (7, (4, 2), False)

    on_done()
    assert settled.called

    node.known.knows_all = True
    assert node.stores.settle(7, (5,)) is None


@pytest.mark.parametrize("has_links", [True, False])
def test_subscription_that_all_know_settles_when_the_others_count_this_hub(node: Node, has_links: bool) -> None:
    """Also one that is durable while this hub stands still, and the next one, which must not overtake it."""
    if not has_links:
        node.links = None
    node.known.knows_all = True
    node.begin()
    node.clock.advance(LOOK_S + 1)  # it stands still
    first, second = node.stores.settle(7, (4, 2)), node.stores.settle(7, (5, 2))
    assert first is not None
    assert second is not None
    assert (first.called, second.called) == (False, False)

    node.pass_time(1.2)

    assert (first.called, second.called) == (True, True)
    assert node.stores.settle(7, (6, 2)) is None


def test_subscription_of_a_hub_that_is_gone_never_settles(node: Node) -> None:
    """Its clients are closed: another hub may have opened the tenant, and has not asked this one."""
    two = other(node)
    node.begin()
    node.follower.round()
    settled = node.stores.settle(7, (4, 2))
    assert settled is not None
    assert node.links is not None
    node.clock.advance(GONE_S)  # it stands still
    node.links.silent_s = GONE_S
    view = hubs.read(node.accounts)
    assert hubs.declare_gone(node.accounts, 2, two.incarnation, (1, node.members.incarnation), SILENT, view.version)

    [(_, _, on_done)] = node.known.waiting
    on_done()  # what the other one had answered before
    node.pass_time(2, two)

    assert (settled.called, len(node.replaced)) == (False, 1)


def test_subscription_that_the_log_cannot_place_settles_after_its_end(node: Node) -> None:
    """Whatever the end is by then; a log that cannot be read is asked again."""
    node.begin()
    settled = node.stores.settle(7, None)
    assert settled is not None
    node.follower.waiting.pop().errback(UnavailableError("away"))
    node.pass_time(1.2)
    assert node.known.waiting == []

    node.stores.log_place.note_applied((9, 8))
    node.follower.round()
    [(_, place, on_done)] = node.known.waiting
    on_done()

    assert (place, settled.called) == ((9, 8), True)


def test_others_hear_of_each_page_when_it_is_applied(node: Node) -> None:
    """In the same turn, beginning with what the start has loaded; who waits for more has the log read."""
    node.begin()
    now(node.follower.apply([], (8,)))

    assert node.known.applied == [(7,), (8,)]
    node.stores.log_place.note_applied((8,))
    assert node.stores.log_place.await_applied((9,), lambda: None)
    assert node.follower.hurried == 1


def test_log_that_cannot_be_followed_is_not_waited_for_for_ever(node: Node) -> None:
    with pytest.raises(UnavailableError):
        now(node.stores.catch_up())
    node.begin()
    failures: list[Any] = []
    Deferred.fromCoroutine(node.stores.catch_up()).addErrback(failures.append)

    node.reactor.advance(CATCH_UP_S + 0.1)

    assert failures[0].check(UnavailableError)


def test_log_that_cannot_be_followed_is_an_alarm_when_there_are_others(node: Node) -> None:
    """A hub that is alone misses nothing."""
    node.begin()
    node.follower.on_alarm("follower_failing", "away")
    other(node)
    now(node.stores.members.refresh())
    node.follower.on_alarm("follower_failing", "away")

    assert node.alarms == [("follower_failing", ""), ("follower_failing", "away")]


def test_states_are_looked_at_again_in_a_thread(node: Node) -> None:
    peers = now(node.stores.join())

    assert now(peers.read_again([SimpleNamespace(key=(7, "c"))])) == ["state of (7, 'c')"]


def test_hub_is_alone_only_when_it_knows_what_the_other_one_said_last(node: Node) -> None:
    """The other's row says that it left before its last events have been read here: they may have made sessions and routes."""
    two = other(node)
    node.begin()
    node.pass_time(6, two)
    node.follower.round()
    node.pass_time(3, two)  # the log cannot be read for a while

    now(two.deregister())
    node.pass_time(1.2)
    was_alone = node.stores.is_alone

    node.follower.round()
    node.pass_time(1.1)
    assert (was_alone, node.stores.is_alone) == (False, True)
    assert node.plane.turn.held_at > node.clock.monotonic()


def test_hub_with_queues_in_a_file_does_not_join_others(node: Node) -> None:
    """They could not store for them, and would acknowledge all the same."""
    other(node)
    node.settings.queues.driver = "sqlite"

    with pytest.raises(ConfigError, match=r"queues here are in a file .* choose hbase or redis"):
        node.begin()
    assert next(row.has_left for row in rows(node) if row.number == 1)
