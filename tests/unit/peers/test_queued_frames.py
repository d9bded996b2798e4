"""QUEUED: what was encoded comes back, and nothing else is taken."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import chain

import pytest

from iothub.engine.message import Message
from iothub.peers.frames import BadFrameError
from iothub.peers.queued_frames import Receiver, decode_queued, records

MESSAGE = Message(b"a/1", b"payload", 2, True, b"\x01\x01", 1_700_000_000.5, publisher_client_id="p")
RECEIVERS = [
    Receiver("s", 7, 1, 1),
    Receiver("ü" * 20, (1 << 63) - 1, (1 << 63) - 1, 2, True, (1, (1 << 28) - 1)),
    Receiver("", 0, 3),
]


def test_records_come_back() -> None:
    body = b"".join(chain(records(1, MESSAGE, RECEIVERS, 1_000), records((1 << 63) - 1, None, RECEIVERS[:1], 1_000)))

    first, second = decode_queued(body)

    assert (first.tenant_id, first.receivers) == (1, RECEIVERS)
    message = first.decode_message()
    assert message is not None
    assert [getattr(message, name) for name in ("topic", "payload", "qos", "retain", "properties", "expires_at")] == [
        getattr(MESSAGE, name) for name in ("topic", "payload", "qos", "retain", "properties", "expires_at")
    ]
    assert (message.publisher, message.publisher_client_id) == (None, "p")
    assert (second.tenant_id, second.decode_message(), second.receivers) == ((1 << 63) - 1, None, RECEIVERS[:1])


def test_many_receivers_are_several_records() -> None:
    """Each with the message, so that a frame has a bound."""
    many = [Receiver(f"s{number}", number, 1, 1) for number in range(100)]

    parts = list(records(1, MESSAGE, many, 500))

    assert len(parts) > 3
    assert max(map(len, parts)) < 700
    assert [each for part in parts for record in decode_queued(part) for each in record.receivers] == many


@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"",
        lambda body: body[:15],
        lambda body: body[:-1],
        lambda body: body + b"\0",
        lambda body: b"\x80" + body[1:],
        lambda body: body[:12] + bytes(4) + body[16:],  # no receiver
        lambda body: body[:12] + b"\xff" * 4 + body[16:],
        lambda body: body[:8] + b"\xff" * 4 + body[12:],
    ],
)
def test_what_is_cut_off_or_has_no_receiver_is_refused(change: object) -> None:
    [body] = records(1, None, [Receiver("s", 7, 1, 1)], 100)

    with pytest.raises(BadFrameError):
        decode_queued(change(body))  # type: ignore[operator]


@pytest.mark.parametrize(
    "receiver",
    [
        Receiver("s", 7, 0),
        Receiver("s", 7, 1 << 63),
        Receiver("s", 1 << 63, 1),
        Receiver("s", 7, 1, 3),
        Receiver("s", 7, 1, 9),
        Receiver("s", 7, 1, identifiers=(0,)),
        Receiver("s", 7, 1, identifiers=(1 << 28,)),
    ],
)
def test_what_no_queue_has_is_refused(receiver: Receiver) -> None:
    [body] = records(1, None, [receiver], 100)

    with pytest.raises(BadFrameError):
        decode_queued(body)


def test_client_identifier_that_is_no_text_is_refused() -> None:
    [body] = records(1, None, [Receiver("s", 7, 1)], 100)

    with pytest.raises(BadFrameError):
        decode_queued(body[:-1] + b"\xff")


def test_message_that_cannot_be_read_is_refused() -> None:
    """Two of them, none of this tenant, or a Topic Name with a wildcard."""
    receivers = [Receiver("s", 7, 1)]
    [body] = records(1, Message(b"a", b""), receivers, 100)
    [other] = records(1, Message(b"#", b""), receivers, 100)
    of_another = body[:7] + b"\x02" + body[8:]

    for each in (other, of_another):
        [record] = decode_queued(each)
        with pytest.raises(BadFrameError):
            record.decode_message()


def test_any_bytes_are_read_or_refused() -> None:
    """Whatever a frame has, nothing but `BadFrameError` is raised, and what is read is within its bounds."""
    rng = random.Random(82)
    good = b"".join(records(1, MESSAGE, RECEIVERS, 1_000))
    for _ in range(5_000):
        body = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        del body[rng.randint(0, 2 * len(body)) :]
        with suppress(BadFrameError):
            for record in decode_queued(bytes(body)):
                assert record.receivers
                record.decode_message()
