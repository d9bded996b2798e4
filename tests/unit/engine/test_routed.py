"""The bytes of messages between hubs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iothub.engine.message import Message
from iothub.engine.routed import decode_routed, encode_routed, tenant_of_routed
from iothub.testing.engine import Bench

HEAD_BYTES = 29


def decoded(body: bytes, sessions: dict[str, Any] | None = None, tenant_id: int = 1) -> list[Message] | None:
    """Return the messages of one tenant up to the end; None: one is malformed."""
    found: list[Message] = []
    at = decode_routed(body, 0, tenant_id, sessions or {}, {}, found)
    assert at in (-1, len(body))
    return found if at >= 0 else None


def test_a_message_keeps_all_that_receivers_need() -> None:
    """Its publisher is found again by the Client Identifier."""
    bench = Bench()
    session = bench.client("p").session
    message = Message(b"a/b", b"body", 2, True, b"\x01\x01", 1234.5, b"", session, "p")

    body = encode_routed(1 << 40, message)
    found = decoded(body, bench.tenant.sessions, 1 << 40)

    assert tenant_of_routed(body, 0) == 1 << 40
    assert found is not None
    names = (
        "topic",
        "payload",
        "qos",
        "retain",
        "properties",
        "expires_at",
        "publisher",
        "publisher_client_id",
        "size",
        "message_id",
    )
    assert [[getattr(each, name) for name in names] for each in found] == [[getattr(message, name) for name in names]]


def test_what_no_client_publishes_has_no_publisher() -> None:
    """No Local does not apply to Wills, even where a client of that name is, and the record before is of that client."""
    bench = Bench()
    session = bench.client("p").session
    messages = (
        Message(b"a", b"", publisher=session, publisher_client_id="p"),
        Message(b"a", b"", publisher_client_id="p"),
    )

    found = decoded(b"".join(encode_routed(1, each) for each in messages), bench.tenant.sessions)

    assert found is not None
    assert [(each.publisher, each.publisher_client_id) for each in found] == [(session, "p"), (None, "p")]


def test_records_are_read_as_far_as_they_are_of_one_tenant() -> None:
    body = b"".join(encode_routed(number // 2, Message(b"a", b"%d" % number)) for number in range(5))
    found: list[Message] = []
    ends = []

    at = 0
    while at < len(body):
        at = decode_routed(body, at, tenant_of_routed(body, at), {}, {}, found)
        ends.append(at)

    record = len(body) // 5
    assert (ends, [each.payload for each in found]) == (
        [2 * record, 4 * record, 5 * record],
        [b"0", b"1", b"2", b"3", b"4"],
    )


def test_a_malformed_body_is_refused_as_a_whole() -> None:
    """Reserved flags, QoS 3, a time out of range, lengths beyond the end, no Topic Name, wildcards, a Client Identifier that is not UTF-8."""
    good = encode_routed(1, Message(b"a", b"", publisher_client_id="p"))

    for at, value in (
        (3, 200),
        (3, 25),
        (12, 0x10),
        (12, 3),
        (13, 0x10),
        (13, 0xFF),
        (22, 200),
        (23, 200),
        (24, 0),
        (28, 1),
        (29, 0xFF),
        (30, ord("#")),
    ):
        assert decoded(good + good[:at] + bytes((value,)) + good[at + 1 :]) is None, at
    assert decoded(good + good[:28]) is None
    assert tenant_of_routed(good[:28], 0) == -1
    assert tenant_of_routed(b"\xff" * 40, 0) == -1


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    """Nothing is read beyond the end, and nothing is raised."""
    tenant_id = tenant_of_routed(body, 0)
    if tenant_id >= 0:
        found: list[Message] = []
        decode_routed(body, 0, tenant_id, {}, {}, found)
        read = sum(HEAD_BYTES + len(each.topic) + len(each.properties) + len(each.payload) for each in found)
        assert read <= len(body)
