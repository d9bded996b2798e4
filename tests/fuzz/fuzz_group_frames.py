"""Any bytes in a frame of shared groups are a body or a BadFrameError; what is decoded encodes again."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.engine.message import Message
from iothub.engine.routed import encode_routed
from iothub.peers.frames import BadFrameError
from iothub.peers.group_frames import GroupCongested, GroupNumbers, GroupPublish, decode_group_publishes

SEEDS: Sequence[bytes] = (
    GroupPublish(3, b"workers", b"a/#", encode_routed(7, Message(b"a/b", b"payload", 1))).encode(),
    GroupPublish(0, b"w", b"+", b"").encode() * 2,
    GroupNumbers([1, 2, 3], [2]).encode(),
    GroupCongested(7, b"workers", b"a/+").encode(),
    bytes(12),
)


def target(data: bytes) -> None:
    """Read the bytes as everything that a frame of groups may have."""
    try:
        publishes = decode_group_publishes(data)
    except BadFrameError:
        pass
    else:
        assert b"".join(each.encode() for each in publishes) == data
    for body in (GroupNumbers, GroupCongested):
        try:
            decoded = body.decode(data)
        except BadFrameError:
            continue
        assert body.decode(decoded.encode()) == decoded
