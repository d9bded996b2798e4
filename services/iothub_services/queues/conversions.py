# cython: annotation_typing=False
"""What the stores get of a publish: its body, an append for queues, a retained write.

Knows the plane's publishes and the ports' values; knows no thread and no store.
"""

from __future__ import annotations

from iothub.engine.outbox import StoredPublish
from iothub.records.message import encode_fields
from iothub_services.queues.port import Append, Delivery, Inbound
from iothub_services.retained.port import RetainedWrite


def body_of(publish: StoredPublish) -> bytes:
    message = publish.message
    return encode_fields(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        int(message.expires_at * 1000),
        message.message_id,
        message.publisher_client_id,
    )


def append_of(publish: StoredPublish, body: bytes) -> Append:
    """Only what may be appended a second time has a message id by which queues recognise it."""
    inbound = None
    if publish.inbound is not None:
        inbound = Inbound(publish.inbound.queue_id, publish.inbound_epoch, publish.packet_id)
    deliveries = [
        Delivery(target.session.queue_id, target.qos, target.flags(), target.identifiers) for target in publish.targets
    ]
    message_id = publish.message.message_id if inbound is not None or publish.is_repeatable else b""
    return Append(message_id, body, int(publish.message.expires_at * 1000), tuple(deliveries), inbound)


def retained_write(publish: StoredPublish, body: bytes) -> RetainedWrite:
    """An empty payload deletes the Retained Message [MQTT-3.3.1-6]."""
    message = publish.message
    return RetainedWrite(
        publish.tenant.tenant_id, message.topic, body if message.payload else None, int(message.expires_at * 1000)
    )
