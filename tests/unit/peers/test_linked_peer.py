"""Frames for another hub stay in their order, whatever its link takes."""

from __future__ import annotations

from iothub.base.errors import UnavailableError
from iothub.peers.directory_frames import Take
from iothub.peers.frames import FrameType
from iothub.peers.linked_peer import LinkedPeer
from iothub.peers.ports import PeerId

TWO = PeerId(2, 1)


class Links:
    """Takes so many frames more."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent: list[int] = []

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        assert (peer, frame_type) == (TWO, FrameType.TAKE)
        if not self.room:
            raise UnavailableError("twice link_bytes wait")
        self.room -= 1
        self.sent.append(Take.decode(body).number)
        return len(self.sent)


def test_what_a_full_link_does_not_take_is_sent_before_what_comes_later() -> None:
    links = Links(room=1)
    peer = LinkedPeer(TWO, links)

    for number in (1, 2, 3):
        peer.send(Take((7, "c"), number))
    links.room = 1
    peer.send(Take((7, "c"), 4))
    assert links.sent == [1]
    peer.send_again()
    assert links.sent == [1, 2]
    links.room = 9
    peer.send_again()
    peer.send(Take((7, "c"), 5))

    assert links.sent == [1, 2, 3, 4, 5]
