"""The session directory keeps its promises in every schedule, and the checks find each rule that is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from iothub.peers.directory import Directory
from iothub.peers.directory_frames import Entries, Hold, parts
from iothub.peers.directory_owner import DirectoryOwner
from iothub.peers.ports import PeerId
from iothub.peers.view import Key, View
from tests.simulation.mutants import MUTANTS as OF_LINKS
from tests.simulation.shown import BY_DAY, require_shown
from tests.simulation.suites import first_fault

SCHEDULES = 1000  # in which each mutant must be found

_DIRECTORY, _OWNER = "iothub.peers.directory.Directory", "iothub.peers.directory_owner.DirectoryOwner"
_peer_up, _change, _judge, _release = (
    Directory.peer_up,
    Directory._change,
    DirectoryOwner._judge,
    DirectoryOwner.release,
)
_announce_view, _let_go, _forget = Directory._announce, Directory.let_go, Directory._forget
_has_announced = DirectoryOwner._has_announced
_announce, _has_left, _give_up = DirectoryOwner.announce, Directory._has_left, Directory.give_up


def _release_any(owner: Any, peer: PeerId, key: Any, number: int, *, has_written: bool) -> None:
    holder = owner.holder(key)
    _release(owner, peer, key, holder[1] if holder is not None else number, has_written=has_written)


def _release_first(directory: Any, key: Any, busy: Any) -> None:
    directory._release(key, busy.number, has_written=True)
    directory._busy[key] = busy
    busy.state = type(busy.state).LEAVING
    directory._clients.leave(key, lambda has_written: _has_left(directory, key, busy, has_written))


def _judge_by_own_view(owner: Any) -> None:
    _judge(owner)
    owner._in_force = (owner._view,) if owner._view is not None and owner._views else ()


def _grant_at_once(owner: Any) -> None:
    owner._views = [owner._view] if owner._view is not None else []
    _judge(owner)


def _has_announced_or_is_gone(owner: Any, peer: PeerId) -> bool:
    return peer in owner._gone or _has_announced(owner, peer)


def _answer_any(directory: Any, _peer: PeerId, answer: Any) -> None:
    busy = directory._busy.get(answer.key)
    if busy is not None and busy.on_held is not None:
        on_held, busy.on_held = busy.on_held, None
        busy.state = type(busy.state).USED
        on_held(answer.written_s)


def _change_without_asking(directory: Any, view: View, before: View) -> None:
    with mock.patch.object(directory, "_ask"):
        _change(directory, view, before)


def _say_nothing(_entries: Any, *, is_last: bool) -> Iterator[Entries]:
    return parts([], is_last=is_last)


def _say_last(entries: Any, *, is_last: bool) -> Iterator[Entries]:
    return parts(entries, is_last=True)


def _owe_the_last_change_alone(directory: Any, view: View, *, is_whole: bool) -> None:
    directory._owed.clear()
    _announce_view(directory, view, is_whole=is_whole)


def _owe_former_owners(directory: Any, view: View, before: View) -> None:
    owed = {peer: set(slots) for peer, slots in directory._owed.items()}
    with mock.patch.object(directory, "_send_entries"):
        _change(directory, view, before)
    for peer, slots in owed.items():
        directory._owed[peer] |= slots
    directory._send_entries()


def _note_at_once(directory: Any, key: Key) -> None:
    if directory._coming is None:
        _let_go(directory, key)


def _forget_none_while_noting(directory: Any, key: Key) -> None:
    if directory._coming is None:
        _forget(directory, key)


def _give_up_silently(directory: Any, key: Any) -> None:
    with mock.patch.object(directory, "_release"):
        _give_up(directory, key)


def _forget_nothing(owner: Any, peer: PeerId, view: View, *, is_whole: bool) -> None:
    with mock.patch.object(owner, "_drop"):
        _announce(owner, peer, view, is_whole=is_whole)


def _introduce_nothing(directory: Any, peer: PeerId) -> None:
    view, directory._view = directory._view, None
    _peer_up(directory, peer)
    directory._view = view


def _never_written(*_: object) -> float:
    return float("inf")


def _refuse_nobody(owner: Any, peer: PeerId, hold: Hold) -> None:
    owner._contest(hold.key).waiting.appendleft((peer, hold))
    owner._holders.pop(hold.key)
    owner._proceed(hold.key)


MUTANTS: dict[str, dict[str, Callable[..., object]]] = {
    "a release of any number": {f"{_OWNER}.release": _release_any},
    "released before the client is closed": {f"{_DIRECTORY}._leave": _release_first},
    "granted by the owner's view alone": {f"{_OWNER}._judge": _judge_by_own_view},
    "granted before the entries have come": {f"{_OWNER}._judge": _grant_at_once},
    "a first view without a word of others": {f"{_OWNER}._has_announced": _has_announced_or_is_gone},
    "any answer is taken": {f"{_DIRECTORY}._take_answer": _answer_any},
    "not asked anew": {f"{_DIRECTORY}._change": _change_without_asking},
    "entries stay where they were": {"iothub.peers.directory.parts": _say_nothing},
    "all entries are the last ones": {"iothub.peers.directory.parts": _say_last},
    "what an earlier change moved is not sent": {f"{_DIRECTORY}._announce": _owe_the_last_change_alone},
    "entries are sent to a former owner": {f"{_DIRECTORY}._change": _owe_former_owners},
    "who comes while others are noted is left out": {f"{_DIRECTORY}.let_go": _note_at_once},
    "who goes while others are noted is kept": {f"{_DIRECTORY}._forget": _forget_none_while_noting},
    "given up without a release": {f"{_DIRECTORY}.give_up": _give_up_silently},
    "entries of an earlier view are kept": {f"{_OWNER}.announce": _forget_nothing},
    "nothing is said to a new peer": {f"{_DIRECTORY}.peer_up": _introduce_nothing},
    "what a hub had that is gone is kept": {f"{_OWNER}.peer_gone": lambda *_: None},
    "nobody has ever written": {"iothub.peers.directory_owner._Written.ago_s": _never_written},
    "the holder is not asked": {f"{_OWNER}.ask": _refuse_nobody},
    "a client of a hub that was alone is forgotten": {f"{_DIRECTORY}._note_client": lambda *_: None},
    "what was taken is kept": {f"{_DIRECTORY}._take_take": lambda *_: None},
}


def test_the_directory_keeps_its_promises() -> None:
    """One hub at a time has a Client Identifier, nobody waits for ever, and no entry stays behind."""
    found = first_fault(BY_DAY, "directory")

    assert found is None, found


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_of_the_directory_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("directory", name, MUTANTS[name], SCHEDULES)


@pytest.mark.parametrize("name", ["nothing sent again", "applied twice"])
def test_broken_rule_of_links_is_found_by_the_directory(name: str) -> None:
    """The directory stands on them."""
    require_shown("directory", name, OF_LINKS[name], SCHEDULES)
