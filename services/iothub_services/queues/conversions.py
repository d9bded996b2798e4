# cython: annotation_typing=False
"""What the stores get of a publish and its body: an append for queues, a retained write.

Knows the plane's publishes and the ports' values; knows no thread and no store.
"""

from __future__ import annotations

from iothub.engine.outbox import StoredPublish
from iothub_services.queues.port import Append, Delivery, Inbound
from iothub_services.retained.port import RetainedWrite


def append_of(publish: StoredPublish, body: bytes) -> Append:
    """Only what may be appended a second time has a message id by which queues recognise it."""
    inbound = inbound_of(publish)
    deliveries = [
        Delivery(target.queue_id, target.qos, target.flags(), target.identifiers) for target in publish.targets
    ]
    message = publish.message
    message_id = b"" if is_appended_once(publish) else message.message_id
    return Append(message_id, body, int(message.expires_at * 1000), tuple(deliveries), inbound)


def inbound_of(publish: StoredPublish) -> Inbound | None:
    """Return the publisher's side of QoS 2, None if it is not recorded."""
    if publish.inbound is None:
        return None
    return Inbound(publish.inbound.queue_id, publish.inbound_epoch, publish.packet_id)


def is_appended_once(publish: StoredPublish) -> bool:
    """Whether it never comes again."""
    return publish.inbound is None and not publish.is_repeatable


def retained_write(publish: StoredPublish, body: bytes) -> RetainedWrite:
    """An empty payload deletes the Retained Message [MQTT-3.3.1-6]."""
    message = publish.message
    return RetainedWrite(
        publish.tenant.tenant_id, message.topic, body if message.payload else None, int(message.expires_at * 1000)
    )
