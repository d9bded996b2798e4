"""The bytes of messages between hubs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iothub.engine.message import Message
from iothub.engine.routed import RoutedBatch, decode_routed, encode_routed, tenant_of_routed
from iothub.engine.state import TenantPlane
from iothub.testing.engine import Bench

HEAD_BYTES = 29
NAMES = (
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


class Peer(RoutedBatch):
    """Another hub: `bodies` are the frames that its link got."""

    def __init__(self, bench: Bench, batch_bytes: int = 1 << 20) -> None:
        super().__init__(bench.plane.turn, batch_bytes)
        self.bodies: list[bytes] = []

    def flush(self) -> None:
        self.is_flush_due = False
        self.flush_messages()

    def flush_messages(self) -> None:
        self.bodies.append(self.take_records())


def decoded(body: bytes, sessions: dict[str, Any] | None = None, tenant_id: int = 1) -> list[Message] | None:
    """Return the messages of one tenant up to the end; None: one is malformed."""
    found: list[Message] = []
    at = decode_routed(body, 0, tenant_id, sessions or {}, {}, found)
    assert at in (-1, len(body))
    return found if at >= 0 else None


def facts(messages: list[Message]) -> list[list[object]]:
    return [[getattr(each, name) for name in NAMES] for each in messages]


def test_a_message_keeps_all_that_receivers_need() -> None:
    """Its publisher is found again by the Client Identifier."""
    bench = Bench()
    session = bench.client("p").session
    message = Message(b"a/b", b"body", 2, True, b"\x01\x01", 1234.5, b"", session, "p")

    body = encode_routed(1 << 40, message)
    found = decoded(body, bench.tenant.sessions.awake, 1 << 40)

    assert tenant_of_routed(body, 0) == 1 << 40
    assert found is not None
    assert facts(found) == facts([message])


def test_what_no_client_publishes_has_no_publisher() -> None:
    """No Local does not apply to Wills, even where a client of that name is, and the record before is of that client."""
    bench = Bench()
    session = bench.client("p").session
    messages = (
        Message(b"a", b"", publisher=session, publisher_client_id="p"),
        Message(b"a", b"", publisher_client_id="p"),
    )

    found = decoded(b"".join(encode_routed(1, each) for each in messages), bench.tenant.sessions.awake)

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


def test_messages_that_differ_in_their_payloads_alone_have_one_head() -> None:
    """They share their Topic Name at the other hub, too: it is looked up once."""
    bench = Bench()
    session = bench.client("p").session
    peer = Peer(bench)
    messages = [
        Message(b"a/b", b"%d" % number, 1, publisher=session, publisher_client_id="p") for number in range(1, 4)
    ]

    for message in messages:
        peer.send(bench.tenant, message)
    bench.plane.end_batch()
    [body] = peer.bodies
    found = decoded(body, bench.tenant.sessions.awake)

    assert len(body) == len(encode_routed(1, messages[0])) + 2 * 5
    assert found is not None
    assert facts(found) == facts(messages)
    assert found[0].topic is found[1].topic is found[2].topic


def test_each_frame_begins_with_a_head() -> None:
    """What a frame of `batch_bytes` has no room for is in the next one, which may come over another connection."""
    bench = Bench()
    message = Message(b"a", b"x" * 20)
    peer = Peer(bench, len(encode_routed(1, message)) + 30)

    for _ in range(3):
        peer.send(bench.tenant, message)
    bench.plane.end_batch()

    assert [len(decoded(body) or ()) for body in peer.bodies] == [2, 1]


def test_a_record_without_a_head_before_it_is_malformed() -> None:
    """Nor may it end behind the end, or stand behind another tenant's head alone."""
    short = b"\x80\0\0\1x"
    good = encode_routed(1, Message(b"a", b""))

    assert (tenant_of_routed(short + good, 0), decode_routed(short + good, 0, 1, {}, {}, [])) == (-1, -1)
    assert len(decoded(good + short) or ()) == 2
    assert decoded(good + short[:4]) is None
    assert decoded(good + short[:3]) is None
    assert decoded(good + b"\xff\xff\xff\xff" + b"x" * 40) is None


MESSAGES = st.builds(
    Message,
    st.sampled_from((b"a", b"a/b")),
    st.binary(max_size=3),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from((b"", b"\x01\x01")),
    st.sampled_from((0.0, 17.0)),
    publisher_client_id=st.sampled_from(("", "p")),
)


@given(st.lists(st.tuples(st.integers(1, 2), MESSAGES), max_size=8), st.sampled_from((1, 80, 1000)))
def test_what_a_turn_sends_is_what_arrives(sent: list[tuple[int, Message]], batch_bytes: int) -> None:
    """Whatever tenants, publishers and options come after one another, and wherever a frame ends."""
    bench = Bench()
    peer = Peer(bench, batch_bytes)
    tenants = {number: TenantPlane(number, "t") for number in (1, 2)}

    for number, message in sent:
        peer.send(tenants[number], message)
    bench.plane.end_batch()
    found: list[Message] = []
    of_tenants: list[int] = []
    for body in peer.bodies:
        at = 0
        while at < len(body):
            tenant_id = tenant_of_routed(body, at)
            at = decode_routed(body, at, tenant_id, {}, {}, found)
            of_tenants += [tenant_id] * (len(found) - len(of_tenants))

    assert facts(found) == facts([message for _, message in sent])
    assert of_tenants == [number for number, _ in sent]


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    """Nothing is read beyond the end, and nothing is raised."""
    tenant_id = tenant_of_routed(body, 0)
    if tenant_id >= 0:
        found: list[Message] = []
        decode_routed(body, 0, tenant_id, {}, {}, found)
        read = sum(4 + len(each.payload) for each in found)
        assert read <= len(body)
