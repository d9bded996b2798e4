"""Retained messages of several hubs keep their promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iothub.peers.frames import FrameType
from iothub.peers.retained import RetainedPeers, _Waiter
from iothub.peers.retained_frames import Retained
from iothub_tenants.broker.retaining import Retaining
from tests.simulation.shown import BY_DAY, require_shown
from tests.simulation.suites import first_fault

SCHEDULES = 500  # in which each mutant must be found

_take_answer, _give_back = RetainedPeers._take_answer, Retaining._give_back
_PEERS, _HERE = "iothub.peers.retained.RetainedPeers", "iothub_tenants.broker.retaining.Retaining"


def _settle_at_once(_here: Any, on_done: Callable[[], None]) -> None:
    on_done()


def _leave_without_a_word(peers: Any, peer: Any, tenant_id: int, *, is_gone: bool) -> None:
    del is_gone
    peers._unannounced.discard((peer, tenant_id))
    peers._end_round((peer, tenant_id))


def _join_the_question_under_way(peers: Any, tenant_id: int, on_asked: Any, on_done: Callable[[], None]) -> bool:
    found = peers._routes.having_open(tenant_id)
    waiter = _Waiter(len(found), on_asked, on_done)
    for peer in found:
        running = peers._rounds.get((peer.id, tenant_id))
        if running is None:
            peers._ask(peer, tenant_id, [waiter])
        else:
            running.waiting.append(waiter)
    return bool(found)


def _part_by_the_second_answer(peers: Any, sender: Any, answer: Any) -> None:
    asked = peers._rounds.get((sender.id, answer.tenant_id))
    if asked is None or asked.number != answer.number or not answer.is_settled:
        return
    for waiter in asked.waiting:
        waiter.on_asked(sender.id)
    _take_answer(peers, sender, answer)


def _tell_what_the_link_takes(peers: Any, tenant_id: int, topic: bytes, version: int, at_ms: int, size: int) -> None:
    for peer in peers._routes.having_open(tenant_id):
        peer.offer(FrameType.RETAINED, Retained(tenant_id, topic, version, at_ms, size).encode())


def _forget_arrivals(here: Any, topic: bytes) -> None:
    here._arrived.pop(topic, None)
    _give_back(here, topic)


def _count_at_once(here: Any, topic: bytes) -> None:
    entry = here._index.get(topic)
    if entry is None:
        here._give_back(topic)
    else:
        here._correct(topic, entry.size)


async def _read_nothing(_here: Any) -> None:
    """The index stays as it is."""


MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "nobody is asked before a replay": {f"{_PEERS}.await_synced": lambda *_: False},
    "who is asked answers at once": {f"{_HERE}.await_settled": _settle_at_once},
    "who asks meanwhile gets the answer under way": {f"{_PEERS}.await_synced": _join_the_question_under_way},
    "no write is told": {f"{_PEERS}.announce_change": lambda *_: None},
    "a write that the link does not take is told all the same": {
        f"{_PEERS}.announce_change": _tell_what_the_link_takes
    },
    "a hub that has just opened the tenant was told": {f"{_PEERS}.peer_opened": lambda *_: None},
    "a hub that is gone has told everything": {f"{_PEERS}.peer_left": _leave_without_a_word},
    "a hub that is gone is waited for": {f"{_PEERS}._end_round": lambda *_: None},
    "what was not told is not read": {f"{_HERE}._read_unannounced": _read_nothing},
    "what comes live is not noted": {f"{_PEERS}.retained_arrived": lambda *_: None},
    "the second answer parts the messages": {f"{_PEERS}._take_answer": _part_by_the_second_answer},
    "the beginning of a replay parts the messages": {f"{_HERE}._note_asked": lambda *_: None},
    "arrivals are forgotten with a deletion": {f"{_HERE}._give_back": _forget_arrivals},
}


def test_retained_messages_keep_their_promises() -> None:
    """A SUBSCRIBE after a PUBACK anywhere gets the message, and nothing that was deleted; nothing older follows; nobody waits for ever."""
    found = first_fault(BY_DAY, "retained")

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_retained_messages_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("retained", name, MUTANTS[name], SCHEDULES)
