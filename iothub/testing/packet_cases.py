"""The shared packet cases: whole packets as bytes, with the packet or the Reason that every parser of ours must give for them.

Knows no parser: the codec's tests, the engine's differential test and the fuzzers' seeds all come from here.
"""

from __future__ import annotations

from typing import Final

from iothub.testing.accepted_cases import ACCEPTED
from iothub.testing.refused_cases import REFUSED
from iothub.testing.wire_bytes import PacketCase

__all__ = ["ACCEPTED", "PACKET_CASES", "REFUSED", "PacketCase"]

PACKET_CASES: Final[tuple[PacketCase, ...]] = ACCEPTED + REFUSED
