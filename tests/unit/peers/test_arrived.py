"""A frame of messages at the hub that gets it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from iothub.engine.message import Message
from iothub.engine.routed import encode_routed
from iothub.engine.state import TenantPlane
from iothub.peers.arrived import read_messages
from iothub.peers.frames import BadFrameError

FIRST, SECOND = SimpleNamespace(tenant=TenantPlane(1, "a")), SimpleNamespace(tenant=TenantPlane(2, "b"))
BODY = b"".join(encode_routed(number, Message(b"t", b"%d" % number, 1)) for number in (1, 3, 2))


def test_messages_of_tenants_that_are_open_here_are_read_in_their_order() -> None:
    """The last client of another one has left meanwhile."""
    found = read_messages(BODY, {1, 2, 3}, {1: FIRST, 2: SECOND})

    assert [(here, [message.payload for message in messages]) for here, messages in found] == [
        (FIRST, [b"1"]),
        (SECOND, [b"2"]),
    ]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "without a message"),
        (BODY[:-1], "tenant 2 that cannot be read"),
        (BODY + BODY[:3], "tenant 2 that cannot be read"),
        (BODY[:3], "tenant -1, which the sender has not open"),
        (BODY + encode_routed(4, Message(b"t", b"")), "tenant 4, which the sender has not open"),
        (encode_routed(3, Message(b"#", b"")), "tenant 3 that cannot be read"),
    ],
)
def test_a_frame_that_is_wrong_anywhere_is_refused_whole(body: bytes, fault: str) -> None:
    with pytest.raises(BadFrameError, match=fault):
        read_messages(body, {1, 2, 3}, {1: FIRST, 2: SECOND})
