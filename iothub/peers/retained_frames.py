"""The bodies of the frames by which hubs announce Retained Messages, and ask each other for what is on its way.

Knows no link, no tenant and no store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iothub.engine.filters import check_topic_name
from iothub.peers.frames import BadFrameError, number_in, pack, truth_in, unpack

_TOPIC_BYTES = _TOPIC_LEVELS = 65_535  # what MQTT itself allows


@dataclass(frozen=True, slots=True)
class Retained:
    """One write that is durable. `size`: bytes of the body, 0: there is no message any more; `expires_at_ms`: Unix time, 0: never."""

    tenant_id: int
    topic: bytes
    version: int
    expires_at_ms: int
    size: int

    def encode(self) -> bytes:
        return pack(
            {
                "tenant": self.tenant_id,
                "topic": self.topic,
                "version": self.version,
                "expires_at_ms": self.expires_at_ms,
                "size": self.size,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Retained:
        """Raises BadFrameError."""
        fields = unpack(body, text_bytes=_TOPIC_BYTES)
        return cls(
            number_in(fields, "tenant"),
            _topic(fields),
            number_in(fields, "version"),
            number_in(fields, "expires_at_ms"),
            number_in(fields, "size"),
        )


@dataclass(frozen=True, slots=True)
class Synced:
    """An answer to a SYNC. The first one comes at once: messages before it were routed before the question, those after it later.

    `is_settled`: it is the second one: what was routed before the first is durable, and its `Retained` stands before this.
    `is_complete`: every write of this hub was announced; else the asker reads the store.
    """

    tenant_id: int
    number: int
    is_settled: bool
    is_complete: bool

    def encode(self) -> bytes:
        return pack(
            {
                "tenant": self.tenant_id,
                "number": self.number,
                "is_settled": self.is_settled,
                "is_complete": self.is_complete,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Synced:
        """Raises BadFrameError."""
        fields = unpack(body)
        return cls(
            number_in(fields, "tenant"),
            number_in(fields, "number"),
            truth_in(fields, "is_settled"),
            truth_in(fields, "is_complete"),
        )


def _topic(fields: Mapping[str, object]) -> bytes:
    value = fields.get("topic")
    if not isinstance(value, bytes) or check_topic_name(value, _TOPIC_LEVELS, _TOPIC_BYTES):
        raise BadFrameError(f"field topic is {value!r:.40}, expected a Topic Name")
    return value
