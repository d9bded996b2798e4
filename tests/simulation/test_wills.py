"""Copies of Wills keep their promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from iothub.peers.ports import PeerId
from iothub.peers.view import View
from iothub.peers.will_copies import WillCopies
from tests.simulation.mutants import announce_first
from tests.simulation.shown import BY_DAY, require_shown
from tests.simulation.suites import first_fault

SCHEDULES = 500  # in which each mutant must be found
_COPIES = "iothub.peers.will_copies.WillCopies"

_set_view, _peer_gone, _frame = WillCopies.set_view, WillCopies.peer_gone, WillCopies.frame


def _never_move(copies: Any, view: View) -> None:
    if copies._view is None:
        _set_view(copies, view)


def _note_new_peer(copies: Any, peer: PeerId) -> None:
    copies._linked.add(peer)


def _publish_all(copies: Any, peer: PeerId) -> None:
    kept = copies._kept.get(peer, {})
    for key, copy in kept.items():
        kept[key] = replace(copy, before=None)
    _peer_gone(copies, peer)


def _publish_first(copies: Any, peer: PeerId) -> None:
    kept = copies._kept.get(peer, {})
    copies._kept[peer] = {key: copy for key, copy in kept.items() if copy.before is None}
    _peer_gone(copies, peer)


def _wait_for_linked_only(copies: Any, view: View) -> None:
    with mock.patch.object(copies, "_publish_orphaned"):
        _set_view(copies, view)


def _publish_at_once(copies: Any, peer: PeerId, frame_type: Any, body: bytes) -> None:
    _frame(copies, peer, frame_type, body)
    for copy in copies._kept.get(peer, {}).values():
        copies._publish(copy)


def _drop_any(copies: Any, key: Any, _message_id: bytes) -> None:
    copy = copies._own.pop(key, None)
    if copy is not None and copies._view is not None:
        copies._drop_at(copy, copies._keepers(key, copies._view))


def _drop_none(copies: Any, peer: PeerId, frame_type: Any, body: bytes) -> None:
    kept = dict(copies._kept.get(peer, {}))
    _frame(copies, peer, frame_type, body)
    copies._kept[peer] = kept | copies._kept.get(peer, {})


MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "no copy moves when hubs come and go": {f"{_COPIES}.set_view": _never_move},
    "a new peer gets no copies": {f"{_COPIES}.peer_up": _note_new_peer},
    "both hubs publish": {f"{_COPIES}.peer_gone": _publish_all},
    "the second copy dies with its hub": {f"{_COPIES}.peer_gone": _publish_first},
    "a first hub that was never linked is waited for": {f"{_COPIES}.set_view": _wait_for_linked_only},
    "a copy is published while its hub is there": {f"{_COPIES}.frame": _publish_at_once},
    "the Will of the next connection is dropped with the one before": {f"{_COPIES}.drop": _drop_any},
    "a drop is not sent": {f"{_COPIES}._drop_at": lambda *_: None},
    "a drop is not applied": {f"{_COPIES}.frame": _drop_none},
    "a drop goes before the Will": {"iothub.peers.link.Link.announce": announce_first},
}


def test_wills_keep_their_promises() -> None:
    """Published by one hub if both copies had arrived and a hub with one lives on; never while the client's hub is there, or after a drop."""
    found = first_fault(BY_DAY, "wills")

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_wills_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("wills", name, MUTANTS[name], SCHEDULES)
