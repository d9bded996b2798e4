"""The bytes of a durable message: the twin that runs makes those of the plain one."""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Iterator

import pytest

from iothub.base.errors import CorruptRecordError
from iothub.engine.message import Message
from iothub.engine.outbox import QueueTarget
from iothub.engine.state import Session, TenantPlane
from iothub.records.message import encode_fields
from iothub_services.queues.bodies import body_of, body_size, message_of
from iothub_services.queues.fastest import fastest
from iothub_services.queues.journal import encoding
from iothub_services.queues.journal.encoding import Delivered, write_append, write_message, write_move, write_single

SESSION = Session(TenantPlane(1, "acme"), "dev-1", "dev-1", True, 1 << 62, 1)
SIZES = (*range(200), 255, 256, 257, 1_023, 1_024, 1_025, 4_096, 70_001)


@pytest.mark.parametrize("seed", range(3))
def test_checksum_is_the_one_of_zlib_for_every_length(seed: int) -> None:
    """Blocks of 64 bytes, of 16 and the rest are summed in different ways."""
    data = random.Random(seed).randbytes(SIZES[-1])
    crc32 = fastest("crc32", zlib.crc32)

    assert [crc32(data[:size]) for size in SIZES] == [zlib.crc32(data[:size]) for size in SIZES]


@pytest.mark.parametrize(
    ("payload", "properties", "expires_at", "message_id", "client_id"),
    [
        (b"", b"", 0.0, b"", ""),
        (b"x" * 1_024, b"\x01\x01", 1_700_000_000.123, b"i" * 16, "dev-1"),
        (bytes(range(256)) * 300, b"p" * 70_000, 9e15, b"\xff" * 16, "gerät-\U0001f600"),
    ],
)
@pytest.mark.parametrize(("qos", "is_retain"), [(0, False), (1, True), (2, False)])
def test_body_is_that_of_the_record_format(
    payload: bytes, properties: bytes, expires_at: float, message_id: bytes, client_id: str, qos: int, is_retain: bool
) -> None:
    message = Message(b"a/b", payload, qos, is_retain, properties, expires_at, message_id, None, client_id)

    assert fastest("body_of", body_of)(message) == body_of(message)
    assert fastest("body_size", body_size)(message) == len(body_of(message))


def damaged(body: bytes) -> Iterator[bytes]:
    """Every kind of damage that the format knows, with a checksum that is right and without."""
    yield body[:37]
    yield b""
    yield body[:-1] + bytes([body[-1] ^ 1])
    for at, octet in ((0, 2), (1, 3), (2, 255), (4, 255), (6, 255), (34, 255)):
        changed = body[:at] + bytes([octet]) + body[at + 1 : -4]
        yield changed + zlib.crc32(changed).to_bytes(4, "big")


@pytest.mark.parametrize("message_id", [b"", b"i" * 16])
@pytest.mark.parametrize("properties", [b"", b"\x01\x01"])
@pytest.mark.parametrize("expires_at_ms", [0, 1_700_000_000_123])
def test_body_is_read_as_by_the_plain_twin(message_id: bytes, properties: bytes, expires_at_ms: int) -> None:
    """Whole, and damaged in every way: the same fields, or the same error."""
    body = encode_fields(b"a/b", b"payload", 2, True, properties, expires_at_ms, message_id, "gerät")
    read = fastest("message_of", message_of)

    assert fields_of(read(body)) == fields_of(message_of(body))
    for each in damaged(body):
        with pytest.raises(CorruptRecordError) as expected:
            message_of(each)
        with pytest.raises(CorruptRecordError, match=re.escape(str(expected.value))):
            read(each)


def fields_of(message: Message) -> tuple[object, ...]:
    return (
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        message.expires_at,
        message.message_id,
        message.publisher,
        message.publisher_client_id,
        message.size,
    )


@pytest.mark.parametrize("client_id", ["x" * 65_536, "\ud800"])
def test_body_whose_fields_cannot_be_written_is_refused(client_id: str) -> None:
    """A length that does not fit would shift what follows; a lone surrogate is no text."""
    with pytest.raises((struct.error, ValueError)):
        fastest("body_of", body_of)(Message(b"a", b"", publisher_client_id=client_id))
    with pytest.raises((struct.error, ValueError)):
        fastest("body_size", body_size)(Message(b"a", b"", publisher_client_id=client_id))


DELIVERIES: list[list[Delivered]] = [
    [],
    [(5, 1, 1, 0, ())],
    [(1 << 63, (1 << 64) - 1, 2, 3, (1, 0xFFFFFFFF)), (7, 8, 0, 1, (), "not written")],
]


@pytest.mark.parametrize("deliveries", DELIVERIES)
@pytest.mark.parametrize("inbound", [None, (4, 9, 65_535)])
@pytest.mark.parametrize("message_id", [b"", b"i" * 16])
def test_record_of_a_message_is_that_of_the_format(
    deliveries: list[Delivered], inbound: tuple[int, int, int] | None, message_id: bytes
) -> None:
    """Behind what the group has already."""
    fields = (b"markmark", message_id, b"body" * 50, 12_500, deliveries, inbound)
    written, plain = bytearray(b"before"), bytearray(b"before")

    fastest("write_append", write_append)(written, *fields)
    write_append(plain, *fields)

    assert written == plain


@pytest.mark.parametrize("identifiers", [(), (1, 0xFFFFFFFF)])
@pytest.mark.parametrize("message_id", [b"", b"i" * 16])
def test_record_of_one_delivery_is_that_of_the_format(identifiers: tuple[int, ...], message_id: bytes) -> None:
    fields = (b"markmark", message_id, b"body" * 50, 12_500)
    target = QueueTarget(SESSION, 2, True, identifiers, is_shared=True)
    delivery = (target.queue_id, (1 << 63) - 1, 2, 3, identifiers)
    written, plain = bytearray(b"before"), bytearray(b"before")

    fastest("write_single", write_single)(written, *fields, target, (1 << 63) - 1)
    write_append(plain, *fields, [delivery], None)

    assert written == plain


@pytest.mark.parametrize("identifiers", [(), (1, 1 << 27)])
@pytest.mark.parametrize("message_id", [b"", b"i" * 16])
def test_record_of_a_message_is_that_of_its_body(identifiers: tuple[int, ...], message_id: bytes) -> None:
    """Behind what is there already."""
    written, plain = bytearray(b"before"), bytearray(b"before")
    message = Message(b"a/b", b"x" * 100, 1, True, b"\x01\x01", 12.5, b"m" * 16, None, "gerät")
    target = QueueTarget(SESSION, 1, True, identifiers, True)

    fastest("write_message", write_message)(written, b"markmark", message_id, message, 12_500, target, 3)
    write_single(plain, b"markmark", message_id, body_of(message), 12_500, target, 3)

    assert written == plain


def test_message_with_more_identifiers_than_a_record_counts_is_refused() -> None:
    """A count that does not fit would shift all that follows, under a checksum that holds."""
    deliveries: list[Delivered] = [(5, 1, 1, 0, tuple(range(1, 65_537)))]

    with pytest.raises((struct.error, ValueError)):
        fastest("write_append", write_append)(bytearray(), b"markmark", b"", b"body", 0, deliveries, None)
    with pytest.raises((struct.error, ValueError)):
        fastest("write_single", write_single)(
            bytearray(), b"markmark", b"", b"body", 0, QueueTarget(SESSION, 1, False, deliveries[0][4]), 1
        )


def test_record_of_a_move_is_that_of_the_format() -> None:
    written, plain = bytearray(), bytearray()

    fastest("write_move", write_move)(written, b"markmark", 2, 1 << 63, 17)
    write_move(plain, b"markmark", 2, 1 << 63, 17)

    assert written == plain


def test_group_uses_the_twin_that_runs() -> None:
    group = encoding.GroupBuffer(b"markmark", 0)
    group.append(b"", b"body", 0, [(5, 1, 1, 0, ())])
    group.move(2, 5, 1)
    plain = bytearray()
    write_append(plain, b"markmark", b"", b"body", 0, [(5, 1, 1, 0, ())], None)
    write_move(plain, b"markmark", 2, 5, 1)

    assert (group.data, group.records) == (plain, 2)
