"""Any bytes in a frame of routes are a body or a BadFrameError, and any bytes of a message are one or none; what is decoded encodes again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from iothub.engine.message import Message
from iothub.engine.routed import decode_routed, encode_routed, tenant_of_routed
from iothub.peers.frames import BadFrameError
from iothub.peers.route_frames import Opened, RouteChange, TenantQuestion, decode_close, encode_close

SEEDS: Sequence[bytes] = (
    RouteChange(7, True, [b"a/#", b"+/b"], [b"c"], [b"d"]).encode(),
    TenantQuestion(7, 3).encode(),
    Opened(7, 3, is_open=True).encode(),
    encode_close(7),
    encode_routed(7, Message(b"a/b", b"payload", 2, True, b"\x01\x01", 17.0, b"", None, "client")),
    encode_routed(7, Message(b"a/b", b"", 1)) + b"\x80\0\0\2xy" + encode_routed(8, Message(b"a", b"")),
    bytes(29) + b"\xff",
)


def target(data: bytes) -> None:
    """Read the bytes as everything that a frame of routes may have."""
    for body in (RouteChange, TenantQuestion, Opened):
        try:
            decoded = body.decode(data)
        except BadFrameError:
            continue
        assert body.decode(decoded.encode()) == decoded
    with suppress(BadFrameError):
        assert decode_close(encode_close(decode_close(data))) >= 0
    tenant_id = tenant_of_routed(data, 0)
    if tenant_id >= 0:
        messages: list[Message] = []
        end = decode_routed(data, 0, tenant_id, {}, {}, messages)
        again: list[Message] = []
        whole = b"".join(encode_routed(tenant_id, message) for message in messages)
        assert decode_routed(whole, 0, tenant_id, {}, {}, again) == len(whole)
        assert [(each.topic, each.payload) for each in again] == [(each.topic, each.payload) for each in messages]
        assert end >= 0 or len(messages) * 4 <= len(data)
