"""Shared groups keep their promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iothub.base.reasons import Drop
from iothub.engine.ports import ABSENT
from iothub.peers.peer_groups import PeerGroups
from tests.simulation.mutants import MUTANTS as OF_LINKS
from tests.simulation.shown import BY_DAY, require_shown
from tests.simulation.suites import first_fault

SCHEDULES = 500  # in which each mutant must be found

_place, _end, _take_publish = PeerGroups.place, PeerGroups.end, PeerGroups.take_publish
_ROUTES, _PEER, _GROUPS = (
    "iothub.peers.routes.Routes",
    "iothub.peers.routed_peer.RoutedPeer",
    "iothub.peers.peer_groups.PeerGroups",
)


def _send_qos_2_at_once(groups: Any, arrival: Any) -> None:
    arrival.is_taken = True
    _place(groups, arrival)


def _choose_taken_anew(groups: Any) -> None:
    for kept in groups._kept.values():
        kept.is_taken = False
    _end(groups)


def _choose_nothing_anew(groups: Any) -> None:
    for kept in groups._kept.values():
        groups._groups.drop(kept)
    groups._kept.clear()
    _end(groups)


def _done_at_receipt(groups: Any, tenant: Any, message: Any, publish: Any) -> None:
    _take_publish(groups, tenant, message, publish)
    if publish.number:
        groups._arrivals.pop(publish.number, None)
        groups._done.append(publish.number)
        groups._answer_later()


def _drop_returned(groups: Any, answer: Any) -> None:
    for number in answer.numbers:
        kept = groups._kept.pop(number, None)
        if kept is not None:
            groups._groups.drop(kept)


def _forget_rest(arrival: Any) -> None:
    arrival._peer.finish(arrival)


def _drop_not_sent(groups: Any, batched: Any, _reason: Drop) -> None:
    for _, _, number in batched:
        if number in groups._kept:
            groups._groups.drop(groups._kept.pop(number))


MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "SUBACK at once": {f"{_ROUTES}.await_routed": lambda *_: False},
    "members elsewhere are not asked": {f"{_PEER}.readiness": lambda *_: ABSENT},
    "QoS 2 goes to a client before its hub is known to have it": {f"{_GROUPS}.place": _send_qos_2_at_once},
    "QoS 2 that may have been sent is chosen anew": {f"{_GROUPS}.end": _choose_taken_anew},
    "nothing is chosen anew when a hub is gone": {f"{_GROUPS}.end": _choose_nothing_anew},
    "nothing is kept until its client has acknowledged it": {f"{_GROUPS}.take_publish": _done_at_receipt},
    "what is returned is not chosen anew": {f"{_GROUPS}.take_none": _drop_returned},
    "the rest of a session is not returned": {"iothub.peers.peer_groups.Arrival.returned": _forget_rest},
    "nobody is held back by a full link": {
        f"{_PEER}.set_full": lambda *_: None,
        f"{_GROUPS}._note_not_sent": _drop_not_sent,
    },
}


def test_shared_groups_keep_their_promises() -> None:
    """What is acknowledged reaches one living member of each group, whatever becomes of hubs, links and clients."""
    found = first_fault(BY_DAY, "groups")

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_groups_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("groups", name, MUTANTS[name], SCHEDULES)


@pytest.mark.parametrize("name", ["nothing sent again", "applied twice"])
def test_broken_rule_of_links_is_found_by_groups(name: str) -> None:
    """Groups stand on them."""
    require_shown("groups", name, OF_LINKS[name], SCHEDULES)
