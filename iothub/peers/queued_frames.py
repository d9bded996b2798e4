"""The body of QUEUED: what was stored for sessions whose clients another hub has, the message once and the place of each in its queue.

Knows no link, no tenant and no session. Fixed binary; a frame is records, one after the other:

    tenant id 8, length of the message 4 (0: it is read from the queue), receivers 4, message as `iothub.engine.routed` has it, receivers
    receiver: queue id 8, position 8, QoS and RETAIN 1, length of Client Identifier 2, identifiers 4, Client Identifier, identifiers 4 each
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from iothub.engine.message import Message
from iothub.engine.routed import decode_routed, encode_routed
from iothub.peers.frames import BadFrameError

_HEAD = Struct(">QII")
_RECEIVER = Struct(">QQBHI")
_IDENTIFIER_BYTES = 4
_MOST = (1 << 63) - 1
_QOS, _RETAIN = 3, 4


@dataclass(frozen=True, slots=True)
class Receiver:
    """One session: its Client Identifier and queue, and the message's position, QoS, RETAIN and identifiers as the queue has them."""

    client_id: str
    queue_id: int
    position: int
    qos: int = 0
    retain: bool = False
    identifiers: tuple[int, ...] = ()

    def encode(self) -> bytes:
        client_id = self.client_id.encode()
        flags = self.qos | (_RETAIN if self.retain else 0)
        head = _RECEIVER.pack(self.queue_id, self.position, flags, len(client_id), len(self.identifiers))
        identifiers = (each.to_bytes(_IDENTIFIER_BYTES, "big") for each in self.identifiers)
        return b"".join((head, client_id, *identifiers))


@dataclass(frozen=True, slots=True)
class Queued:
    """One record. `message`: encoded; empty: the receivers read it from their queues."""

    tenant_id: int
    message: bytes
    receivers: list[Receiver]

    def decode_message(self) -> Message | None:
        """None: there is none. Its publisher is no session: No Local was applied before it was stored. Raises BadFrameError."""
        if not self.message:
            return None
        messages: list[Message] = []
        if decode_routed(self.message, 0, self.tenant_id, {}, {}, messages) != len(self.message) or len(messages) != 1:
            raise BadFrameError(f"a QUEUED of tenant {self.tenant_id} with a message that cannot be read")
        return messages[0]


def records(tenant_id: int, message: Message | None, receivers: list[Receiver], at_most: int) -> Iterator[bytes]:
    """Yield as many records as the receivers need, each with about so many bytes of them."""
    encoded = b"" if message is None else encode_routed(tenant_id, message)
    part = bytearray()
    count = 0
    for receiver in receivers:
        part += receiver.encode()
        count += 1
        if len(part) >= at_most:
            yield _HEAD.pack(tenant_id, len(encoded), count) + encoded + part
            part.clear()
            count = 0
    if count:
        yield _HEAD.pack(tenant_id, len(encoded), count) + encoded + part


def decode_queued(body: bytes) -> list[Queued]:
    """Return the records of a frame. Raises BadFrameError."""
    found: list[Queued] = []
    at = 0
    while at < len(body):
        if len(body) - at < _HEAD.size:
            raise BadFrameError("a QUEUED that is cut off")
        tenant_id, size, count = _HEAD.unpack_from(body, at)
        message_at = at + _HEAD.size
        at = message_at + size
        if tenant_id > _MOST or not count or count * _RECEIVER.size > len(body) - at:
            raise BadFrameError("a QUEUED that is cut off, or without a receiver")
        receivers: list[Receiver] = []
        message = body[message_at:at]
        for _ in range(count):
            receiver, at = _receiver(body, at)
            receivers.append(receiver)
        found.append(Queued(tenant_id, message, receivers))
    if not found:
        raise BadFrameError("a QUEUED without a record")
    return found


def _receiver(body: bytes, at: int) -> tuple[Receiver, int]:
    """Return the receiver that begins there, and where it ends."""
    if len(body) - at < _RECEIVER.size:
        raise BadFrameError("a QUEUED whose receivers are cut off")
    queue_id, position, flags, id_bytes, count = _RECEIVER.unpack_from(body, at)
    id_at = at + _RECEIVER.size
    identifiers_at = id_at + id_bytes
    end = identifiers_at + count * _IDENTIFIER_BYTES
    if end > len(body) or not 0 < position <= _MOST or queue_id > _MOST or flags > _RETAIN + 2 or flags & _QOS == _QOS:
        raise BadFrameError("a QUEUED with a receiver that cannot be read")
    try:
        client_id = body[id_at:identifiers_at].decode()
    except UnicodeDecodeError:
        raise BadFrameError("a QUEUED with a Client Identifier that is no text") from None
    identifiers = tuple(
        int.from_bytes(body[each : each + _IDENTIFIER_BYTES], "big")
        for each in range(identifiers_at, end, _IDENTIFIER_BYTES)
    )
    if identifiers and not (min(identifiers) > 0 and max(identifiers) < 1 << 28):
        raise BadFrameError("a QUEUED with an identifier that no subscription has")
    return Receiver(client_id, queue_id, position, flags & _QOS, bool(flags & _RETAIN), identifiers), end
