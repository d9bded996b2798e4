"""Subscriptions that race with the messages of another hub get what was published after their SUBACK and nothing older, in every schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from iothub.peers.link import Link
from tests.simulation.suites import first_fault

SCHEDULES = (479, *range(100))  # the first one finds what the others do not

_attach, _confirm = Link.attach, Link._confirm


def _hear_hello(link: Any, wire: Any, applied_by_peer: int, now: float) -> None:
    """The peer may route more before it says what that has overtaken."""
    link._heard = max(link._heard, applied_by_peer)
    _attach(link, wire, applied_by_peer, now)


def _arrived_when_applied(link: Any) -> None:
    """What was overtaken is older than the subscription."""
    _confirm(link)
    link._on_acknowledged(link.peer, link._heard, link._heard)


MUTANTS: dict[str, tuple[str, Callable[..., object]]] = {
    "HELLO's number is heard": ("attach", _hear_hello),
    "applied is taken for arrived": ("_confirm", _arrived_when_applied),
}


def test_subscriptions_that_race_with_messages_get_what_is_theirs() -> None:
    """Nothing that was published after a SUBACK is left out, and after the first message of a topic nothing is."""
    found = next(filter(None, (first_fault(range(seed, seed + 1), "races") for seed in SCHEDULES)), None)

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_acknowledgements_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    method, replacement = MUTANTS[name]
    with mock.patch.object(Link, method, replacement):
        found = next(filter(None, (first_fault(range(seed, seed + 1), "races") for seed in SCHEDULES)), None)

    assert found is not None
