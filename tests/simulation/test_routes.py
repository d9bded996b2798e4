"""Routes between hubs keep their promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iothub.peers.announced import Announced
from iothub.peers.routed_peer import RoutedPeer
from iothub.peers.routes import Routes
from tests.simulation.mutants import MUTANTS as OF_LINKS
from tests.simulation.mutants import announce_first
from tests.simulation.shown import BY_DAY, require_shown
from tests.simulation.suites import first_fault

SCHEDULES = 500  # in which each mutant must be found

_note_change, _open_tenant = Announced._note_change, Routes.open_tenant
_ANNOUNCED = "iothub.peers.announced.Announced"
_ROUTES, _PEER = "iothub.peers.routes.Routes", "iothub.peers.routed_peer.RoutedPeer"


def _announce_nothing_to_new(routes: Any, peer: Any) -> None:
    routes._peers[peer] = RoutedPeer(peer, routes._links.link_to(peer), routes._plane.turn, routes._groups)


def _forget_at_once(announced: Any, topic_filter: bytes, before: int, now: int) -> None:
    _note_change(announced, topic_filter, before, now)
    announced._on_their_way.pop(topic_filter, None)


def _applied_by_the_first(routes: Any, announcement: Any, _peer: Any) -> None:
    if announcement.unanswered:
        announcement.unanswered = set()
        routes._call_waiting(announcement)


def _wait_for_linked_only(routes: Any, tenant: Any) -> None:
    members, routes._members = routes._members, frozenset()
    _open_tenant(routes, tenant)
    routes._members = members


MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "SUBACK at once": {f"{_ROUTES}.await_routed": lambda *_: False},
    "SUBACK when it was announced": {f"{_ANNOUNCED}._note_change": _forget_at_once},
    "SUBACK after the first hub's answer": {f"{_ROUTES}._applied": _applied_by_the_first},
    "served before the answers": {f"{_ROUTES}.await_opened": lambda *_: False},
    "a hub that was never linked is not waited for": {f"{_ROUTES}.open_tenant": _wait_for_linked_only},
    "nothing is announced to a new peer": {f"{_ROUTES}.peer_up": _announce_nothing_to_new},
    "a hub that is gone is waited for": {f"{_ROUTES}.peer_gone": lambda *_: None},
    "announced before the messages of the turn": {"iothub.peers.link.Link.announce": announce_first},
    "messages wait for the next turn": {f"{_PEER}.flush": lambda *_: None},
    "nobody is held back by a full link": {f"{_PEER}.set_full": lambda *_: None},
}


def test_routes_keep_their_promises() -> None:
    """What is acknowledged after a SUBACK elsewhere arrives once and in order; nobody waits for ever."""
    found = first_fault(BY_DAY, "routes")

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_routes_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("routes", name, MUTANTS[name], SCHEDULES)


@pytest.mark.parametrize("name", ["nothing sent again", "applied twice"])
def test_broken_rule_of_links_is_found_by_routes(name: str) -> None:
    """Routes stand on them."""
    require_shown("routes", name, OF_LINKS[name], SCHEDULES)
