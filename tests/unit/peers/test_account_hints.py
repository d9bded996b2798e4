"""Hubs that tell each other of account changes: each looks once, nobody tells what it was told, and a hint that is lost does no harm."""

from __future__ import annotations

import msgpack
import pytest

from iothub.base.errors import UnavailableError
from iothub.peers.account_hints import AccountHints
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId


class Hub:
    """Its links deliver at once. `looks`: how often it has read the change log; `log`: where that ends."""

    log = 0

    def __init__(self, node: int) -> None:
        self.id = PeerId(node, 1)
        self.others: list[Hub] = []
        self.full: set[PeerId] = set()
        self.looks = self.sent = 0
        self.hints = AccountHints(self, self.look)

    def up(self) -> tuple[PeerId, ...]:
        return tuple(other.id for other in self.others)

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        if peer in self.full:
            raise UnavailableError("twice link_bytes wait")
        self.sent += 1
        [target] = [other for other in self.others if other.id == peer]
        target.hints.frame(self.id, frame_type, body)
        return self.sent

    def look(self) -> None:
        self.looks += 1
        self.hints.note_read(Hub.log)


def linked(count: int) -> list[Hub]:
    """Hubs that have begun to read."""
    Hub.log = 0
    hubs = [Hub(node) for node in range(1, count + 1)]
    for hub in hubs:
        hub.others = [other for other in hubs if other is not hub]
        hub.hints.note_read(None)
    return hubs


def test_a_change_that_one_hub_has_read_makes_each_other_one_look_once() -> None:
    """And nobody tells it again."""
    hubs = linked(4)
    Hub.log = 7

    hubs[0].look()
    hubs[2].look()

    assert [hub.looks for hub in hubs] == [1, 1, 2, 1]
    assert [hub.sent for hub in hubs] == [3, 0, 0, 0]


def test_a_change_that_comes_while_a_hub_looks_is_told_in_its_turn() -> None:
    one, two = linked(2)
    Hub.log = 7

    one.hints.note_read(6)

    assert (one.looks, two.looks) == (1, 1)
    assert (one.sent, two.sent) == (1, 1)


def test_accounts_that_were_restored_begin_at_lower_numbers() -> None:
    """Another number is news, whether it is higher or not."""
    one, two = linked(2)
    for log in (9, 3):
        Hub.log = log
        one.look()

    assert two.looks == 2


def test_a_link_that_takes_no_more_keeps_nobody_up() -> None:
    """That hub looks by itself."""
    one, two, three = linked(3)
    one.full.add(two.id)
    Hub.log = 1

    one.look()

    assert (two.looks, three.looks) == (0, 1)


def test_a_hub_that_has_not_begun_to_read_is_not_made_to() -> None:
    """Its start reads all; a later hint counts."""
    one, two = linked(2)
    two.hints = AccountHints(two, two.look)
    Hub.log = 1
    one.look()
    assert two.looks == 0

    two.hints.note_read(None)
    Hub.log = 2
    one.look()

    assert two.looks == 1


@pytest.mark.parametrize("change", [-1, True, 1 << 63, "1", None])
def test_a_hint_that_cannot_be_read_closes_the_link(change: object) -> None:
    _, two = linked(2)

    with pytest.raises(BadFrameError):
        two.hints.frame(PeerId(1, 1), FrameType.ACCOUNTS, msgpack.packb({"change": change}))
    assert two.looks == 0
