"""The bodies of the frames by which hubs tell each other of Retained Messages, and ask each other for what is on its way.

Knows no link, no tenant and no store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iothub.engine.filters import check_topic_name
from iothub.peers.frames import BadFrameError, pack, unpack

_TOPIC_BYTES = _TOPIC_LEVELS = 65_535  # what MQTT itself allows
_MOST = (1 << 63) - 1


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
            _number(fields, "tenant"),
            _topic(fields),
            _number(fields, "version"),
            _number(fields, "expires_at_ms"),
            _number(fields, "size"),
        )


@dataclass(frozen=True, slots=True)
class Sync:
    """`number`: of this question; both answers name it."""

    tenant_id: int
    number: int

    def encode(self) -> bytes:
        return pack({"tenant": self.tenant_id, "number": self.number})

    @classmethod
    def decode(cls, body: bytes) -> Sync:
        """Raises BadFrameError."""
        fields = unpack(body)
        return cls(_number(fields, "tenant"), _number(fields, "number"))


@dataclass(frozen=True, slots=True)
class Synced:
    """An answer to a `Sync`. The first one comes at once: messages before it were routed before the question, those after it later.

    `is_settled`: it is the second one: what was routed before the first is durable, and its `Retained` stands before this.
    `is_complete`: every write of this hub was told; else the asker reads the store.
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
            _number(fields, "tenant"),
            _number(fields, "number"),
            _truth(fields, "is_settled"),
            _truth(fields, "is_complete"),
        )


def _topic(fields: Mapping[str, object]) -> bytes:
    value = fields.get("topic")
    if not isinstance(value, bytes) or check_topic_name(value, _TOPIC_LEVELS, _TOPIC_BYTES):
        raise BadFrameError(f"field topic is {value!r:.40}, expected a Topic Name")
    return value


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise BadFrameError(f"field {name} is {value!r:.40}, expected a number of at most {_MOST}")
    return value


def _truth(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise BadFrameError(f"field {name} is {value!r:.40}, expected true or false")
    return value
