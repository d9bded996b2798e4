"""What takes frames of links is made when another hub is there for the first time."""

from __future__ import annotations

from iothub.hub.cluster.peer_receiver import PeerReceiver
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from tests.support.in_process.paired_wires import NotedFrames

TWO = PeerId(2, 1)


def test_a_receiver_is_made_once_and_gets_all_that_links_say() -> None:
    made: list[NotedFrames] = []

    def make() -> NotedFrames:
        made.append(NotedFrames())
        return made[-1]

    receiver = PeerReceiver(make)
    assert made == []

    receiver.peer_up(TWO)
    receiver.frame(TWO, FrameType.WILL, b"x")
    receiver.peer_gone(TWO)

    [core] = made
    assert (core.ups, core.frames, core.gone) == ([TWO], [(TWO, FrameType.WILL, b"x")], [TWO])
