"""What hubs know of the session log keeps its promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iothub.peers.frames import FrameType
from iothub.peers.known import PeerPlaces
from iothub.peers.place_frames import TenantPlace, encode_known
from tests.simulation.shown import BY_DAY, require_shown
from tests.simulation.suites import first_fault

SCHEDULES = 500  # in which each mutant must be found

_PLACES, _OWN = "iothub.peers.known.PeerPlaces", "iothub.peers.known.OwnPlace"
_note_applied = PeerPlaces.note_applied


def _known_when_asked(places: Any, question: Any) -> None:
    """Say what was asked for, not what is applied."""
    places._peers.announce(question.peer, FrameType.KNOWN, encode_known(question.place))


def _answered_by_the_first(places: Any, _peer: object, is_answered: Any) -> None:
    for change in places._changes:
        if is_answered(change):
            change.unanswered.clear()
    done = [change for change in places._changes if not change.unanswered]
    places._changes = [change for change in places._changes if change.unanswered]
    for change in done:
        change.on_done()


def _go_on_at_once(places: Any, place: Any) -> None:
    for tenant_id in places._pauses:
        places._peers.hold(tenant_id, is_held=False)
    places._pauses.clear()
    _note_applied(places, place)


def _promise_and_hold_nobody(places: Any, question: Any) -> None:
    body = TenantPlace(question.tenant_id, question.place).encode()
    places._peers.announce(question.peer, FrameType.PAUSED, body)


MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "SUBACK at once": {f"{_PLACES}.await_known": lambda *_: False},
    "SUBACK after the first hub's answer": {f"{_PLACES}._answered": _answered_by_the_first},
    "known when it is asked": {f"{_PLACES}._take_question": _known_when_asked},
    "paused, and publishers are read": {f"{_PLACES}._pause": _promise_and_hold_nobody},
    "publishers are read again after any page": {f"{_PLACES}.note_applied": _go_on_at_once},
    "the place of an OPENED is passed over": {"iothub.peers.routes.joined": lambda place, _: place},
    "OPENED without what was written": {f"{_OWN}.known": lambda own: own.applied},
    "what a hub that is gone knew is not read": {f"{_OWN}.note_gone": lambda _: None},
    "a hub that is gone is waited for": {f"{_PLACES}.peer_gone": lambda *_: None},
}
"""That a CLOSE answers a question is not among them: the KNOWN of the next page answers it as well, so only a hub that cannot read its log shows it
(`tests/unit/peers/test_known.py`).
"""


def test_what_hubs_know_keeps_its_promises() -> None:
    """Every hub stores for a persistent session from its SUBACK on, and none from its UNSUBACK on; nobody waits for ever."""
    found = first_fault(BY_DAY, "known")

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_what_hubs_know_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("known", name, MUTANTS[name], SCHEDULES)
