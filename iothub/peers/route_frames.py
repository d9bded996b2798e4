"""The bodies of the frames by which hubs announce to each other which tenants they have open, and what their clients subscribe.

Knows no link, no tenant and no session. `PUBLISH` is fixed binary: see `iothub.engine.routed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from iothub.engine.filters import check_topic_filter
from iothub.peers.frames import BadFrameError, number_in, pack, truth_in, unpack
from iothub.peers.place_frames import place_in
from iothub.peers.places import NOWHERE, Offsets

FILTERS = 4_096  # in one frame
FILTERS_BYTES = 256 << 10
_FILTER_BYTES = _FILTER_LEVELS = 65_535


@dataclass(frozen=True, slots=True)
class TenantQuestion:
    """OPEN, and SYNC of retained messages. `number`: of this question; the answer names it."""

    tenant_id: int
    number: int

    def encode(self) -> bytes:
        return pack({"tenant": self.tenant_id, "number": self.number})

    @classmethod
    def decode(cls, body: bytes) -> TenantQuestion:
        """Raises BadFrameError."""
        fields = unpack(body)
        return cls(number_in(fields, "tenant"), number_in(fields, "number"))


@dataclass(frozen=True, slots=True)
class Opened:
    """The answer to an OPEN. `is_open`: this hub has the tenant open too, and its routes stand before this; else it has none.

    `place`: up to where this hub knows the session log, so that whoever asks knows what clients of the tenant were acknowledged before.
    """

    tenant_id: int
    number: int
    is_open: bool
    place: Offsets = NOWHERE

    def encode(self) -> bytes:
        return pack(
            {"tenant": self.tenant_id, "number": self.number, "is_open": self.is_open, "place": list(self.place)}
        )

    @classmethod
    def decode(cls, body: bytes) -> Opened:
        """Raises BadFrameError."""
        fields = unpack(body)
        return cls(
            number_in(fields, "tenant"), number_in(fields, "number"), truth_in(fields, "is_open"), place_in(fields)
        )


def encode_close(tenant_id: int) -> bytes:
    return pack({"tenant": tenant_id})


def decode_close(body: bytes) -> int:
    """Return the tenant id. Raises BadFrameError."""
    return number_in(unpack(body), "tenant")


@dataclass(frozen=True, slots=True)
class RouteChange:
    """Topic Filters that a hub needs from now on, and those that it does not need any more. `is_whole`: it needs no other one.

    `everything`: each message; `qos0`: only what is published with QoS 0, as queues bring the rest.
    """

    tenant_id: int
    is_whole: bool = False
    everything: list[bytes] = field(default_factory=list)
    qos0: list[bytes] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)

    def encode(self) -> bytes:
        return pack(
            {
                "tenant": self.tenant_id,
                "is_whole": self.is_whole,
                "everything": self.everything,
                "qos0": self.qos0,
                "removed": self.removed,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> RouteChange:
        """Raises BadFrameError."""
        fields = unpack(body, text_bytes=_FILTER_BYTES, items=FILTERS)
        lists = [_filters(fields, name) for name in ("everything", "qos0", "removed")]
        return cls(number_in(fields, "tenant"), truth_in(fields, "is_whole"), *lists)


def changes(
    tenant_id: int,
    everything: Iterable[bytes],
    qos0: Iterable[bytes] = (),
    removed: Iterable[bytes] = (),
    *,
    is_whole: bool = False,
) -> Iterator[bytes]:
    """Yield the bodies of as many ROUTEs as these Topic Filters need, at least one if they are the whole set."""
    change = RouteChange(tenant_id, is_whole)
    count = size = 0
    for name, filters in (("everything", everything), ("qos0", qos0), ("removed", removed)):
        for topic_filter in filters:
            if count == FILTERS or (count and size + len(topic_filter) > FILTERS_BYTES):
                yield change.encode()
                change = RouteChange(tenant_id)
                count = size = 0
            getattr(change, name).append(topic_filter)
            count += 1
            size += len(topic_filter)
    if count or change.is_whole:
        yield change.encode()


def _filters(fields: Mapping[str, object], name: str) -> list[bytes]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise BadFrameError(f"field {name} is {value!r:.40}, expected a list of Topic Filters")
    for topic_filter in value:
        if not isinstance(topic_filter, bytes) or check_topic_filter(topic_filter, _FILTER_LEVELS, _FILTER_BYTES):
            raise BadFrameError(f"field {name} has {topic_filter!r:.40}, expected a Topic Filter")
    return value
