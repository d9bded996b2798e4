"""The bodies of the frames by which hubs say to each other how far they have applied the session log.

Knows no link, no tenant and no event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iothub.peers.frames import number_in, numbers_in, pack, unpack
from iothub.peers.places import Offsets

PARTITIONS = 4_096  # of the session log, at most


@dataclass(frozen=True, slots=True)
class TenantPlace:
    """KNOW: a hub asks whether this hub knows the log up to `place`, for a tenant. PAUSED: this hub publishes nothing of it before it does."""

    tenant_id: int
    place: Offsets

    def encode(self) -> bytes:
        return pack({"tenant": self.tenant_id, "place": list(self.place)})

    @classmethod
    def decode(cls, body: bytes) -> TenantPlace:
        """Raises BadFrameError."""
        fields = unpack(body, items=PARTITIONS)
        return cls(number_in(fields, "tenant"), place_in(fields))


def encode_known(place: Offsets) -> bytes:
    """KNOWN: what this hub publishes from here on is routed by the log up to `place`."""
    return pack({"place": list(place)})


def decode_known(body: bytes) -> Offsets:
    """Raises BadFrameError."""
    return place_in(unpack(body, items=PARTITIONS))


def place_in(fields: Mapping[str, object]) -> Offsets:
    """Return the field `place`. Raises BadFrameError."""
    return numbers_in(fields, "place")
