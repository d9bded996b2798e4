"""What hubs store for each other's sessions keeps its promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from iothub.peers.known import PeerPlaces
from iothub.peers.options import Change, TenantOptions
from iothub.peers.places import NOWHERE, covers
from tests.simulation.schedule import Fault, Schedule
from tests.simulation.shown import BY_DAY, require_shown
from tests.simulation.suites import fault_of, first_fault
from tests.support.night import by_day

SCHEDULES = 500  # in which each mutant must be found
SHOWN_IN = 54  # of the schedules in which a hub is replaced while it stands still: 1 of 70 misses a SUBACK of it
REPLACED = (SHOWN_IN, *range(by_day(20, 500)))

_OPTIONS, _CHANGE = "iothub.peers.options.TenantOptions", "iothub.peers.options.Change"
_QUEUED, _PLACES = "iothub.peers.queued.QueuedPeers", "iothub.peers.known.PeerPlaces"
_as_of, _note_applied = TenantOptions.as_of, PeerPlaces.note_applied


def _as_before_until_all_know(options: Any, message: Any, target: Any) -> Any:
    """Take the former options, however far the hub that has sent the message had applied the log."""
    options._place = NOWHERE
    for change in options._changes:
        change.began = {options._peer: NOWHERE}
    return _as_of(options, message, target)


def _as_before_until_durable(options: Any, message: Any, target: Any) -> Any:
    """A hub may have applied what is not known to be durable here."""
    for change in options._changes:
        change.began = {options._peer: options._place}
    return _as_of(options, message, target)


def _say_when_asked(places: Any, place: Any) -> None:
    """KNOWN only to a hub that waits for it."""
    asked = {each.peer for each in places._questions if covers(place, each.place)} | set(places._pauses)
    linked, places._linked = places._linked, places._linked & asked
    _note_applied(places, place)
    places._linked = linked


def _announce_nothing_before(change: Change) -> list[bytes]:
    del change
    return []


MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "options of this moment": {f"{_OPTIONS}.as_of": lambda _options, _message, target: target},
    "former options until all know the new ones": {f"{_OPTIONS}.as_of": _as_before_until_all_know},
    "former options until the change is durable here": {f"{_OPTIONS}.as_of": _as_before_until_durable},
    "what is unclear is not delivered": {f"{_OPTIONS}._deliver_unclear": lambda *_: None},
    "KNOWN to those that ask": {f"{_PLACES}.note_applied": _say_when_asked},
    "only the new options are announced": {"iothub.peers.options._held": lambda *_: None},
    "durable before it is announced": {f"{_CHANGE}.filters": _announce_nothing_before},
    "nobody hears what is stored": {f"{_QUEUED}.queued": lambda *_: None},
    "nobody hears what was stored before a client came": {f"{_QUEUED}.connected": lambda *_: None},
    "a client moves in the middle of a change": {f"{_OPTIONS}.await_changes": lambda *_: False},
    "no look at the tails when a hub goes": {f"{_QUEUED}.peer_gone": lambda *_: None},
}


def test_what_hubs_store_for_each_other_keeps_its_promises() -> None:
    """Each message reaches the session once, by its queue or directly, however its QoS changes and wherever its client goes."""
    found = first_fault(BY_DAY, "queued")

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_what_hubs_store_for_each_other_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("queued", name, MUTANTS[name], SCHEDULES)


def _replaced(seed: int) -> Schedule:
    """A hub stands still before it is linked, and goes on beside its next incarnation, perhaps with a SUBSCRIBE on its way."""
    return Schedule(seed, 3, (Fault(0.1 + seed % 5 / 10, "twin", 1, 2, 1.2),))


def test_subscription_at_a_hub_that_was_replaced_while_it_stood_still_is_not_acknowledged() -> None:
    """Nobody asks that hub what it has written; with a SUBACK the messages of hubs that have not read it yet would be missed."""
    found = [fault for seed in REPLACED if (fault := fault_of(_replaced(seed), "queued")) is not None]
    assert found == []

    with mock.patch("tests.simulation.queued.StoredClients.may_acknowledge", return_value=True):
        is_found = any(fault_of(_replaced(seed), "queued") is not None for seed in REPLACED)

    assert is_found
