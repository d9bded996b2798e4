"""Copies of Wills: where they are, where they move, and what is refused in a frame."""

from __future__ import annotations

import msgpack
import pytest

from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.peers.view import View
from iothub.peers.will_copies import ORPHANED_S, WillBody, WillCopies, WillCopy

ONE, TWO, THREE, FOUR = (PeerId(node, 1) for node in (1, 2, 3, 4))
ALL = (ONE, TWO, THREE, FOUR)
BODY = WillBody("dev1", 3, 5, b"will", b"gone", 1, False, b"", None)
ID = b"i" * 16


class Hub:
    """Hub ONE, or another one. Fulfils `Announcer` and `BootClock`."""

    def __init__(self, me: PeerId = ONE, *own: WillCopy) -> None:
        self.sent: list[tuple[PeerId, WillCopy]] = []
        self.published: list[WillCopy] = []
        self.now = 100.0
        self.copies = WillCopies(me, self, self.published.append, lambda: own, self)
        for peer in ALL:
            if peer != me:
                self.copies.peer_up(peer)

    def boottime(self) -> float:
        return self.now

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        assert frame_type is FrameType.WILL
        self.sent.append((peer, WillCopy.decode(body)))
        return len(self.sent)

    def take(self) -> dict[PeerId, tuple[bool, PeerId | None]]:
        """Who was sent a copy, and after whom it publishes; False: it was dropped there."""
        sent, self.sent = self.sent, []
        return {peer: (copy.will is not None, copy.before) for peer, copy in sent}

    def receive(self, sender: PeerId, copy: WillCopy) -> None:
        self.copies.frame(sender, FrameType.WILL, copy.encode())


def copy_of(client_id: str, message_id: bytes = ID, before: PeerId | None = None) -> WillCopy:
    return WillCopy((7, client_id), message_id, BODY, before)


def test_a_will_is_kept_by_the_first_two_other_hubs_and_dropped_there() -> None:
    hub, view = Hub(), View(0, ALL)
    hub.copies.set_view(view)
    first, second = [each for each in view.ranked((7, "c")) if each != ONE][:2]

    hub.copies.keep(copy_of("c"))
    assert hub.take() == {first: (True, None), second: (True, first)}
    hub.copies.drop((7, "c"), b"x" * 16)
    assert hub.take() == {}
    hub.copies.drop((7, "c"), ID)

    assert hub.take() == {first: (False, None), second: (False, None)}


def test_copies_move_when_the_view_changes_and_only_those_that_must() -> None:
    hub, view = Hub(), View(0, ALL)
    hub.copies.set_view(view)
    hub.copies.keep(copy_of("c"))
    first, second, third = (each for each in view.ranked((7, "c")) if each != ONE)
    hub.take()

    hub.copies.set_view(View(0, [ONE, first, second]))
    assert hub.take() == {}
    hub.copies.set_view(View(0, [ONE, second, third]))
    assert hub.take() == {first: (False, None), second: (True, None), third: (True, second)}
    hub.copies.set_view(View(0, [ONE]))
    assert hub.take() == {}


def test_clients_that_were_there_before_the_first_other_hub_are_listed_once() -> None:
    hub = Hub(ONE, copy_of("c"), copy_of("d"))
    hub.copies.set_view(View(0, [ONE]))
    assert hub.take() == {}

    hub.copies.set_view(View(0, [ONE, TWO]))

    assert [copy.key[1] for _, copy in hub.sent] == ["c", "d"]


def test_a_new_peer_gets_what_it_is_to_keep() -> None:
    hub = Hub()
    hub.copies.set_view(View(0, [ONE, TWO]))
    hub.copies.keep(copy_of("c"))
    hub.take()

    hub.copies.peer_gone(TWO)
    later = PeerId(2, 2)
    hub.copies.peer_up(later)
    assert hub.take() == {}
    hub.copies.set_view(View(0, [ONE, later]))

    assert hub.take() == {later: (True, None)}


@pytest.mark.parametrize("order", [(TWO, THREE), (THREE, TWO)])
def test_a_second_copy_is_published_when_both_hubs_are_gone(order: tuple[PeerId, PeerId]) -> None:
    hub = Hub()
    hub.receive(TWO, copy_of("c", before=THREE))

    for peer in order:
        hub.copies.peer_gone(peer)

    assert [each.key for each in hub.published] == [(7, "c")]


@pytest.mark.parametrize("is_known_before", [True, False], ids=["known to be gone", "not yet"])
def test_a_second_copy_is_dropped_once_the_first_hub_has_published_it(is_known_before: bool) -> None:
    """Whether or not this hub knows by then that the Will's own hub is gone; what has not been published yet stays."""
    first, second = Hub(THREE), Hub(ONE)
    for client_id, message_id in (("c", ID), ("d", b"j" * 16)):
        first.receive(TWO, copy_of(client_id, message_id))
        second.receive(TWO, copy_of(client_id, message_id, THREE))
    first.copies.peer_gone(TWO)
    if is_known_before:
        second.copies.peer_gone(TWO)

    first.copies.published(first.published[0])
    for peer, copy in first.sent:
        if peer == ONE:
            second.receive(THREE, copy)
    if not is_known_before:
        second.copies.peer_gone(TWO)
    second.now += 5.0
    second.copies.peer_gone(THREE)

    assert [copy.key[1] for copy in second.published] == ["d"]


def test_a_copy_stays_that_another_hub_than_its_first_one_says_is_published() -> None:
    """It was the first one by an earlier view of the Will's hub, which has another Will of the key since."""
    hub = Hub()
    hub.receive(TWO, copy_of("c", b"j" * 16, THREE))
    hub.receive(THREE, WillCopy((7, "c"), ID, None))
    hub.receive(FOUR, WillCopy((7, "c"), b"j" * 16, None))

    assert len(hub.copies) == 1


def test_a_second_copy_is_forgotten_when_the_first_hub_lives_on() -> None:
    """It has published the Will."""
    hub = Hub()
    hub.receive(TWO, copy_of("c", before=THREE))
    hub.copies.peer_gone(TWO)
    hub.now += ORPHANED_S + 1.0

    hub.copies.peer_gone(THREE)

    assert hub.published == []
    assert hub.copies._orphaned == {}


def test_second_copies_are_forgotten_although_nobody_else_is_gone() -> None:
    """At the next look at the accounts, which finds who was there before."""
    hub = Hub()
    view = View(0, [ONE, THREE])
    hub.copies.set_view(view)
    hub.receive(TWO, copy_of("c", before=THREE))
    hub.copies.peer_gone(TWO)
    hub.copies.set_view(view)
    assert len(hub.copies._orphaned[THREE]) == 1

    hub.now += ORPHANED_S + 1.0
    hub.copies.set_view(view)

    assert hub.copies._orphaned == {}


def test_a_copy_that_is_replaced_is_not_dropped_by_the_id_of_the_one_before() -> None:
    hub = Hub()
    hub.receive(TWO, copy_of("c"))
    hub.receive(TWO, copy_of("c", b"j" * 16))

    hub.receive(TWO, WillCopy((7, "c"), ID, None))
    assert len(hub.copies) == 1
    hub.receive(TWO, WillCopy((7, "c"), b"j" * 16, None))

    assert len(hub.copies) == 0


def body(**fields: object) -> bytes:
    will = {name: getattr(BODY, name) for name in BODY.__slots__}
    usual = {"tenant": 7, "client": "c", "id": ID, "before": None, "will": will}
    packed: bytes = msgpack.packb(usual | fields)
    return packed


def will_with(**fields: object) -> dict[str, object]:
    return {name: getattr(BODY, name) for name in BODY.__slots__} | fields


def test_a_frame_comes_back_as_it_was() -> None:
    copy = copy_of("c", before=THREE)

    assert WillCopy.decode(copy.encode()) == copy
    assert WillCopy.decode(body()) == copy_of("c")


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": -1},
        {"tenant": True},
        {"client": ""},
        {"client": b"c"},
        {"id": b"short"},
        {"id": None},
        {"before": [1]},
        {"before": [1, -1]},
        {"before": 1},
        {"will": 1},
        {"will": {"topic": b"t"}},
        {"will": will_with(more=1)},
        {"will": will_with(topic=b"")},
        {"will": will_with(topic="t")},
        {"will": will_with(topic=b"a/#")},
        {"will": will_with(topic=b"\xff")},
        {"will": will_with(qos=3)},
        {"will": will_with(qos=-1)},
        {"will": will_with(retain=1)},
        {"will": will_with(expiry_s=1.5)},
        {"will": will_with(payload=b"x" * ((1 << 18) + 1))},
    ],
)
def test_a_frame_outside_its_bounds_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadFrameError):
        WillCopy.decode(body(**fields))


def test_a_second_copy_is_published_when_the_first_hub_is_gone_that_was_never_linked() -> None:
    """The accounts alone say that it is gone."""
    hub = Hub()
    hub.copies.set_view(View(0, ALL))
    hub.copies._linked.discard(THREE)
    hub.receive(TWO, copy_of("c", before=THREE))
    hub.copies.peer_gone(TWO)
    hub.copies.set_view(View(0, [ONE, THREE, FOUR]))
    assert hub.published == []

    hub.copies.set_view(View(0, [ONE]))

    assert [copy.key for copy in hub.published] == [(7, "c")]
