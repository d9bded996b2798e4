"""Who takes which reliable frames."""

from __future__ import annotations

import pytest

from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.peers.receivers import Receivers
from tests.support.in_process.paired_wires import NotedFrames

PEER = PeerId(2, 1)


def test_a_frame_goes_to_whoever_takes_its_type() -> None:
    receivers, first, second = Receivers(), NotedFrames(), NotedFrames()
    receivers.by_type = {
        FrameType.PUBLISH: (first, False),
        FrameType.OPEN: (second, True),
        FrameType.CLOSE: (first, True),
    }

    told = [receivers(PEER, each, each.name.encode()) for each in receivers.by_type]

    assert told == [False, True, True]
    assert (first.bodies, second.bodies) == ([b"PUBLISH", b"CLOSE"], [b"OPEN"])
    assert receivers.all() == [first, second]


def test_a_type_that_nobody_takes_is_a_fault_of_the_peer() -> None:
    with pytest.raises(BadFrameError, match="a frame of type PUBLISH, which HELLO did not name"):
        Receivers()(PEER, FrameType.PUBLISH, b"")
