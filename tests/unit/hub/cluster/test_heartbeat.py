"""Until when a hub may route, how it hears that it, or another one, is gone (`iothub.hub.cluster.heartbeat`, `iothub.hub.cluster.cluster_parts`)."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import ConflictError, ExpelledError, UnavailableError
from iothub.hub.cluster.cluster import ACKNOWLEDGED_S
from iothub.peers.link import SILENT_S
from iothub.peers.membership import GO_ON_S, LOOK_S, UNLINKED_S
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.hubs import CUT_OFF, EVICTED, SILENT
from iothub_tenants.background.membership import GONE_S, Members
from tests.support.in_process.clustered_hub import Links, Node, kill, other, rows
from tests.support.in_process.control_harness import now


def test_publishers_go_on_while_the_others_are_heard_of_or_their_heartbeats_seen(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two is enough; without both the others may not wait for this hub any more."""
    two, links = other(node), node.links
    assert links is not None
    node.begin()
    node.pass_time(1.5, two)
    node.follower.round()
    assert node.stores.held_back == ""

    monkeypatch.setattr(node.stores.members, "refresh", failing_look)
    for _ in range(5):
        node.pass_time(1)
        assert node.plane.turn.held_at > node.clock.monotonic()
    links.are_down = True
    node.pass_time(2.5)
    assert node.plane.turn.held_at <= node.clock.monotonic()


def test_hub_that_hears_how_another_one_sees_who_is_there_looks_at_once(node: Node) -> None:
    """Clients of both wait until the two see the same."""
    node.begin()
    node.pass_time(1.5)
    two = other(node)
    assert node.members.living == set()

    node.stores.look_soon()

    assert node.members.living == {two.number}


def test_hub_that_was_held_reads_the_log_before_it_goes_on(node: Node) -> None:
    """It may have been frozen, and the others have acknowledged subscriptions without it."""
    two = other(node)
    node.begin()
    node.pass_time(1.5, two)
    node.follower.round()
    assert node.plane.turn.held_at > node.clock.monotonic()

    node.clock.advance(8)
    node.pass_time(1.5, two)
    assert node.plane.turn.held_at <= node.clock.monotonic()
    assert node.follower.hurried == 1
    assert node.stores.held_back == (
        "the session log could not be read up to its end for 7 s; publishers and durable queues wait"
    )
    node.follower.on_alarm("follower_failing", "no answer")
    assert node.stores.held_back == "no answer"

    node.follower.round()
    assert node.plane.turn.held_at > node.clock.monotonic()
    assert node.stores.held_back == ""


def test_hub_that_cannot_see_the_others_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone as it may be: it does not know."""
    node.begin()
    node.follower.round()
    monkeypatch.setattr(node.stores.members, "refresh", failing_look)

    node.pass_time(8)

    assert node.stores.held_back == (
        "the accounts are away: for 5 s nobody knows whether other hubs are there; publishers and durable queues wait"
    )


async def failing_look(**_how: object) -> None:
    raise UnavailableError("the accounts are away")


def test_hub_that_is_gone_begins_again(node: Node) -> None:
    """Once: by its row, or because another hub tells it so."""
    node.begin()
    two = other(node)
    node.pass_time(2, two)
    row = rows(node)[0]
    assert hubs.declare_gone(
        node.accounts, 2, two.incarnation, (1, row.incarnation), CUT_OFF, hubs.read(node.accounts).version
    )

    node.pass_time(3, two)

    assert [type(error) for error in node.replaced] == [ExpelledError]
    assert node.plane.turn.held_at == -math.inf
    assert node.guards[-1] is not None
    assert not node.guards[-1]()


def test_hub_that_is_told_that_it_is_gone_begins_again(node: Node) -> None:
    node.begin()
    assert node.links is not None
    on_tick, on_told_gone = node.links.calls

    on_told_gone()
    on_tick()

    assert [type(error) for error in node.replaced] == [ExpelledError]


def test_acknowledgements_wait_for_evidence_while_there_are_others(node: Node) -> None:
    """A hub that is alone asks nobody."""
    node.begin()
    assert node.guards[-1] is None
    two = other(node)
    node.pass_time(2, two)
    guard = node.guards[-1]
    assert guard is not None
    assert guard()

    assert node.links is not None
    node.links.silent_s = SILENT_S + 1  # this process stood still
    node.clock.advance(LOOK_S + 1)

    assert not guard()


def test_hub_deregisters_after_everything_else(node: Node) -> None:
    """Nothing is held back any more, and nobody looks."""
    node.begin()

    now(node.stores.stop_following())
    now(node.stores.leave(has_logged_all=True))
    node.pass_time(3)

    assert node.follower.is_closed
    assert node.plane.turn.held_at == math.inf
    assert rows(node)[0].has_left
    assert node.reactor.getDelayedCalls() == []


def test_heartbeat_does_not_wait_for_the_log(node: Node) -> None:
    """It would seem gone to a third hub, which would take over from it."""
    two = other(node)
    node.begin()
    node.pass_time(6, two)
    node.follower.round()
    kill(node)  # and the log cannot be read
    before = rows(node)[0].heartbeat

    node.pass_time(8)

    assert rows(node)[0].heartbeat - before >= 6


def test_hub_lives_for_the_others_until_its_last_events_are_in_the_log(node: Node) -> None:
    """A successor would take over from it while it still writes. If they do not get there, the others see it fall silent."""
    node.begin()
    now(node.stores.stop_following())
    before = rows(node)[0].heartbeat
    node.pass_time(5)
    assert rows(node)[0].heartbeat - before >= 4

    now(node.stores.leave(has_logged_all=False))
    before = rows(node)[0].heartbeat
    node.pass_time(5)
    (row,) = rows(node)
    assert (row.heartbeat, row.is_gone) == (before, False)


def test_links_are_told_each_second_who_lives(node: Node) -> None:
    """From the joining on, with the address that each hub wrote into its row; nobody else's silence is waited for."""
    node.links = Links()
    two = Members(node.accounts, cast("Any", node.run), node.clock, 2, "two")
    now(two.join(None, cast("Any", node.pause), "hub-2:7883"))
    node.begin()
    assert (node.links.begun, node.links.seen) == ([node.members.incarnation], [(2, "hub-2:7883")])
    now(two.refresh())
    assert [row.address for row in two.present_rows()] == ["hub-1:7883"]

    node.pass_time(2, two)
    now(two.deregister())
    node.pass_time(2)

    assert node.links.seen == []


def test_links_end_before_the_sockets_do(node: Node) -> None:
    """What was written last has a turn to leave."""
    node.links = Links()
    node.begin()
    closed = Deferred.fromCoroutine(node.stores.close_links())
    assert node.links.is_closed
    assert not closed.called

    node.pass_time(0.2)

    assert closed.called


def evict(node: Node, number: int = 2) -> list[Any]:
    row = next(row for row, _ in node.members.rows() if row.number == number)
    answers: list[Any] = []
    Deferred.fromCoroutine(node.stores.evict(row)).addBoth(answers.append)
    return answers


def test_hub_is_evicted_though_it_is_linked_and_its_heartbeat_moves(node: Node) -> None:
    """That moves the version, and whoever reads it goes on without it."""
    two = other(node)
    node.begin()
    node.follower.round()
    node.pass_time(1, two)
    seen = hubs.read(node.accounts).version

    answers = evict(node)
    node.pass_time(1, two)

    assert answers == [None]
    row = rows(node)[1]
    assert (row.gone_by, row.gone_why, hubs.read(node.accounts).version) == (1, EVICTED, seen + 1)
    assert node.members.living == {2}
    node.pass_time(GO_ON_S + 1)
    assert node.members.living == frozenset()


def test_hub_that_is_gone_is_acknowledged_as_such(node: Node) -> None:
    other(node)
    node.begin()
    node.follower.round()
    kill(node)
    assert rows(node)[1].gone_why == SILENT

    assert evict(node) == [None]

    assert rows(node)[1].gone_why == EVICTED


def test_last_hub_that_serves_clients_is_not_evicted(node: Node) -> None:
    """By one that is still joining."""
    two = other(node)
    assert node.links is not None
    node.links.are_down = True
    node.begin()
    node.pass_time(1, two)

    (answer,) = evict(node)

    assert isinstance(answer.value, ConflictError)
    assert "hub two (2) is the last one that serves clients" in str(answer.value)
    assert not rows(node)[1].is_gone


def test_eviction_that_cannot_be_written_says_why(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is done later."""
    two = other(node)
    node.begin()
    node.follower.round()
    node.pass_time(1, two)

    async def fail(*_: object, **__: object) -> None:
        raise UnavailableError("the accounts do not answer")

    with monkeypatch.context() as patch:
        patch.setattr(node.members, "refresh", fail)
        answers = evict(node)
        node.pass_time(4)
    node.pass_time(1, two)

    assert "the accounts do not answer" in str(answers[0].value)
    assert not rows(node)[1].is_gone


def test_links_end_when_the_others_have_acknowledged_everything(node: Node) -> None:
    """And not much later, if they do not."""
    two, links = other(node), node.links
    assert links is not None
    node.begin()
    node.follower.round()
    node.pass_time(1, two)
    links.unacknowledged_bytes = 5

    Deferred.fromCoroutine(node.stores.close_links())
    node.pass_time(1, two)
    assert not links.is_closed
    links.unacknowledged_bytes = 0
    node.pass_time(0.2, two)
    assert links.is_closed

    links.is_closed, links.unacknowledged_bytes = False, 5
    Deferred.fromCoroutine(node.stores.close_links())
    node.pass_time(ACKNOWLEDGED_S + 0.2, two)
    assert links.is_closed


def test_hub_that_dies_while_the_accounts_are_away_is_gone_once_they_are_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then publishers wait: nobody knows whether it lives. No client is closed for it."""
    two, links = other(node), node.links
    assert links is not None
    node.begin()
    node.pass_time(1.5, two)
    node.follower.round()
    with monkeypatch.context() as patch:
        patch.setattr(node.stores.members, "refresh", failing_look)
        links.are_down = True
        node.pass_time(UNLINKED_S - 5)
        assert not rows(node)[1].is_gone
        assert node.plane.turn.held_at <= node.clock.monotonic()
        assert "the accounts are away" in node.stores.held_back

    node.pass_time(GONE_S + 3)

    assert (rows(node)[1].gone_by, rows(node)[1].gone_why) == (1, SILENT)
    assert (node.replaced, node.closed) == ([], [])
    node.follower.round()
    node.pass_time(GO_ON_S)
    assert node.plane.turn.held_at > node.clock.monotonic()


def test_links_tick_again_when_this_hub_goes_on_without_another_one(node: Node) -> None:
    """Alone it needs no tick."""
    node.begin()
    assert node.links is not None
    on_tick, _ = node.links.calls
    assert on_tick() == math.inf
    two = other(node)
    node.pass_time(2, two)
    assert hubs.declare_gone(
        node.accounts, 1, rows(node)[0].incarnation, (2, two.incarnation), CUT_OFF, hubs.read(node.accounts).version
    )

    node.pass_time(2)

    due = cast("float", on_tick())
    assert 0 < due - node.boot_clock.boottime() <= GO_ON_S
