"""Membership keeps its promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from iothub.peers.membership import Look, Membership
from tests.simulation.shown import BY_DAY, require_shown
from tests.simulation.suites import first_fault

SCHEDULES = 500  # in which each mutant must be found
_MEMBERSHIP = "iothub.peers.membership.Membership"
_LINKS = "iothub.peers.links.Links"

_pass_time, _why_gone, _links_up = Membership.pass_time, Membership._why_gone, Membership.links_up
_take_look = Membership.take_look


def _evidence_of_links_that_are_up(membership: Any) -> float:
    """A link that looks up is no evidence: what was read last may be old."""
    if membership.gone:
        return -math.inf
    if all(map(membership._links.is_linked, membership.members())):
        return math.inf
    return float(membership._look_began) + 3.0


def _why_gone_though_linked(membership: Any, seen: Any) -> str:
    return "silent" if seen.still_s >= 10.0 else _why_gone(membership, seen)


def _go_on_alone(membership: Any) -> None:
    """Take a hub for gone because its counter stands still, and say so to nobody."""
    for seen in membership._others.values():
        if seen.still_s >= 10.0 and not seen.is_passed:
            seen.is_passed = True
            membership._links.drop(seen.row.peer)
    _pass_time(membership)


def _take_look_as_of_now(membership: Any, look: Look) -> Any:
    return _take_look(membership, replace(look, began=membership._clock.boottime()))


def _up_without_links(membership: Any) -> bool:
    return bool(membership._is_ready and not membership.is_up)


MUTANTS: dict[str, dict[str, Any]] = {
    "nobody holds": {f"{_MEMBERSHIP}.routes_until": lambda membership: -math.inf if membership.gone else math.inf},
    "a link that looks up is evidence": {f"{_MEMBERSHIP}.routes_until": _evidence_of_links_that_are_up},
    "a still counter is enough": {f"{_MEMBERSHIP}._why_gone": _why_gone_though_linked},
    "gone without a word": {f"{_MEMBERSHIP}.pass_time": _go_on_alone, f"{_MEMBERSHIP}.told_gone": lambda *_: None},
    "acknowledged without a look at the clock": {
        "tests.simulation.membership.MemberClients.may_acknowledge": lambda _clients: True
    },
    "a look counts from its end": {f"{_MEMBERSHIP}.take_look": _take_look_as_of_now},
    "gone on without at once": {"iothub.peers.membership.GO_ON_S": 0.0},
    "by an old picture": {"tests.simulation.membership.Table.is_current": lambda *_: True},
    "answered after it was declared gone": {f"{_LINKS}.mute": lambda *_: None, f"{_LINKS}.expel": lambda *_: None},
    "up without links": {f"{_MEMBERSHIP}._may_be_up": _up_without_links},
    "whoever has more links goes": {f"{_MEMBERSHIP}.links_up": lambda membership: 9 - _links_up(membership)},
}


def test_membership_keeps_its_promises() -> None:
    """What is acknowledged was routed to whoever lives and has acknowledged a subscription before; in the end everybody is up and has an answer."""
    found = first_fault(BY_DAY, "membership")

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_membership_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("membership", name, MUTANTS[name], SCHEDULES)
