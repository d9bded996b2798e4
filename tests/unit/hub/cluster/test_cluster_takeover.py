"""What a hub does when another one is gone or has overtaken it (`iothub.hub.cluster.cluster`)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from iothub.base.errors import ConflictError, UnavailableError
from iothub.base.reasons import Reason
from iothub_tenants.accounts import hubs
from iothub_tenants.background.membership import GONE_S, Members
from tests.support.in_process.clustered_hub import Node, kill, other, rows
from tests.support.in_process.control_harness import now


class Held:
    """A session with a client."""

    def __init__(self) -> None:
        self.connection, self.epoch = object(), 5


def test_start_that_is_silent_is_taken_over_from_and_may_go_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due for the sessions of its earlier run does not wait for its store; it serves nobody, so it need not be gone for that."""
    taken_over: list[frozenset[int]] = []

    async def take_over(numbers: frozenset[int], _lost_at_ms: int) -> int:
        taken_over.append(numbers)
        return 0

    monkeypatch.setattr(node.remote_sessions, "take_over", take_over)
    two = Members(node.accounts, cast("Any", node.run), node.clock, 2, "two")
    now(two.join(None, cast("Any", node.pause), "hub-2:7883"))
    node.begin()
    node.pass_time(GONE_S + 3)
    node.follower.round()

    assert (taken_over, node.members.living, rows(node)[1].is_gone) == ([frozenset({2})], frozenset(), False)
    node.pass_time(2, two)
    assert node.members.living == {2}


def test_hub_that_is_gone_is_taken_over_from_when_its_last_events_are_known(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when it was last seen."""
    taken_over: list[tuple[frozenset[int], int]] = []
    two = other(node)
    node.begin()

    async def take_over(numbers: frozenset[int], lost_at_ms: int) -> int:
        taken_over.append((numbers, lost_at_ms))
        return 3

    monkeypatch.setattr(node.remote_sessions, "take_over", take_over)
    node.pass_time(1.5, two)
    node.follower.round()
    seen_at = node.clock.wall()

    kill(node)
    assert taken_over == []
    node.follower.round()

    ((numbers, lost_at_ms),) = taken_over
    assert numbers == frozenset({2})
    assert abs(lost_at_ms / 1000 - seen_at) <= 2.0
    assert node.members.living == frozenset()


def test_takeover_that_fails_halfway_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else will ever end the sessions of the hub that is gone."""
    taken_over: list[frozenset[int]] = []
    two = other(node)
    node.begin()

    async def take_over(numbers: frozenset[int], _lost_at_ms: int) -> int:
        taken_over.append(numbers)
        if len(taken_over) == 1:
            raise UnavailableError("no")
        return 3

    monkeypatch.setattr(node.remote_sessions, "take_over", take_over)
    node.pass_time(1.5, two)
    node.follower.round()
    kill(node)
    for _ in range(3):
        node.follower.round()
        node.pass_time(1.5)

    assert taken_over == [frozenset({2})] * 2


def test_nothing_is_taken_over_from_a_hub_that_has_come_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log could not be read while the hub was away: its clients may be connected again, so their Wills are not due."""
    taken_over: list[frozenset[int]] = []
    two = other(node)
    node.begin()

    async def take_over(numbers: frozenset[int], _lost_at_ms: int) -> int:
        taken_over.append(numbers)
        return 3

    monkeypatch.setattr(node.remote_sessions, "take_over", take_over)
    node.pass_time(1.5, two)
    node.follower.round()
    kill(node)
    again = other(node, two.incarnation)
    node.pass_time(2, again)
    node.follower.round()
    assert taken_over == []

    kill(node)
    node.follower.round()
    assert taken_over == [frozenset({2})]


def test_hub_whose_place_was_taken_says_so(node: Node) -> None:
    """It must not go on."""
    node.begin()
    row = rows(node)[0]
    assert hubs.begin(node.accounts, 1, "quicker", row) is not None

    node.pass_time(2)

    assert [type(error) for error in node.replaced][:1] == [ConflictError]


def test_client_whose_session_was_claimed_elsewhere_is_closed_when_the_log_does_not_say_more(node: Node) -> None:
    """The other hub died between the claim and its event; else the follower has seen to it."""
    node.begin()
    stuck, moved = Held(), Held()
    for session in (stuck, moved, stuck):
        node.stores.on_stale(cast("Any", session))
    moved.epoch = 6

    assert len(node.follower.waiting) == 2
    node.follower.round()

    assert node.closed == [(stuck.connection, Reason.TAKEN_OVER)]
