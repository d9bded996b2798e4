"""What the stores get of a publish of the message plane."""

from __future__ import annotations

import pytest

from iothub.engine.message import Message
from iothub.engine.outbox import QueueTarget, StoredPublish
from iothub.engine.state import Session, TenantPlane
from iothub.records.message import decode_message
from iothub_services.queues.bodies import body_of
from iothub_services.queues.conversions import append_of, retained_write
from iothub_services.queues.port import Delivery, Inbound

ACME = TenantPlane(7, "acme")


def publish_of(payload: bytes, *targets: QueueTarget) -> StoredPublish:
    message = Message(b"a/b", payload, 2, True, b"", 12.5, b"i" * 16, None, "c1")
    return StoredPublish(ACME, message, list(targets), True)


def test_body_has_the_message_and_its_deadline_in_milliseconds() -> None:
    stored = decode_message(body_of(publish_of(b"on").message))

    assert (stored.topic, stored.payload, stored.qos) == (b"a/b", b"on", 2)
    assert stored.expires_at_ms == 12_500


def test_append_names_the_queue_of_each_receiver_and_the_publishers_packet() -> None:
    """The identifier of a QoS 2 publish is recorded in the same transaction, at the publisher's epoch."""
    publish = publish_of(b"on", QueueTarget(Session(ACME, "c2", "dev2", True, 5), 1, False, (3,)))
    publish.inbound, publish.inbound_epoch, publish.packet_id = Session(ACME, "c1", "dev1", True, 4), 9, 77

    append = append_of(publish, b"body")

    assert append.deliveries == (Delivery(5, 1, 0, (3,)),)
    assert append.inbound == Inbound(4, 9, 77)
    assert append.expires_at_ms == 12_500


@pytest.mark.parametrize(
    ("is_inbound", "is_repeatable", "message_id"),
    [(False, False, b""), (True, False, b"i" * 16), (False, True, b"i" * 16)],
)
def test_only_what_may_come_again_has_a_message_id(is_inbound: bool, is_repeatable: bool, message_id: bytes) -> None:
    """Of a session that ends with its connection nobody repeats anything: queues need not remember it."""
    publish = publish_of(b"on", QueueTarget(Session(ACME, "c2", "dev2", True, 5), 2, False, ()))
    publish.inbound = Session(ACME, "c1", "dev1", True, 4) if is_inbound else None
    publish.is_repeatable = is_repeatable

    assert append_of(publish, b"body").message_id == message_id
    assert decode_message(body_of(publish.message)).message_id == b"i" * 16


def test_empty_payload_deletes_what_is_retained() -> None:
    assert retained_write(publish_of(b"on"), b"body").body == b"body"
    assert retained_write(publish_of(b""), b"body").body is None
