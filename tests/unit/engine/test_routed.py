"""The bytes of a message between hubs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iothub.engine.message import Message
from iothub.engine.routed import decode_routed, encode_routed, tenant_of_routed
from iothub.testing.engine import Bench


def test_a_message_keeps_all_that_receivers_need() -> None:
    """Its publisher is found again by the Client Identifier."""
    bench = Bench()
    session = bench.client("p").session
    message = Message(b"a/b", b"body", 2, True, b"\x01\x01", 1234.5, b"", session, "p")

    body = encode_routed(1 << 40, message)
    found = decode_routed(body, bench.tenant.sessions)

    assert tenant_of_routed(body) == 1 << 40
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
    )
    assert [getattr(found, name) for name in names] == [getattr(message, name) for name in names]
    assert found.message_id == b""


def test_what_no_client_publishes_has_no_publisher() -> None:
    """No Local does not apply to Wills, even where a client of that name is."""
    bench = Bench()
    bench.client("p")

    found = decode_routed(encode_routed(1, Message(b"a", b"", publisher_client_id="p")), bench.tenant.sessions)

    assert found is not None
    assert (found.publisher, found.publisher_client_id) == (None, "p")


def test_a_malformed_body_is_none() -> None:
    """Reserved flags, QoS 3, lengths beyond the end, no Topic Name, a Client Identifier that is not UTF-8."""
    good = encode_routed(1, Message(b"a", b"", publisher_client_id="p"))

    for at, value in ((8, 0x10), (8, 3), (9, 0x10), (18, 200), (19, 200), (20, 0), (24, 1), (25, 0xFF)):
        assert decode_routed(good[:at] + bytes((value,)) + good[at + 1 :], {}) is None, at
    assert tenant_of_routed(good[:24]) == -1


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    """Nothing is read beyond the end, and nothing is raised."""
    if tenant_of_routed(body) >= 0:
        found = decode_routed(body, {})
        if found is not None:
            assert 25 + len(found.topic) + len(found.properties) + len(found.payload) <= len(body)
