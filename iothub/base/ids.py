"""Identifiers that travel: tenant, queue and the 128-bit, time-ordered message id (D15); and what a tenant's name looks like.

Knows no store: numeric tenant and queue ids are allocated by the registry.
"""

from __future__ import annotations

import os
import re
import struct
from typing import NewType

from iothub.base.clock import Clock

TenantId = NewType("TenantId", int)  # 32 bit, from SQL, never re-used
QueueId = NewType("QueueId", int)  # 64 bit, one per persistent-session incarnation

TENANT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,31}")
TENANT_RULE = "2 to 32 of a-z, 0-9 and -, beginning with a letter or digit"

_MESSAGE_ID = struct.Struct(">QHIH")
_SEQUENCE_LIMIT = 1 << 16
RUN = 64  # ids that are allocated together


class MessageIds:
    """Allocates message ids: 64-bit hybrid-logical-clock microseconds | 16-bit node | 32-bit worker incarnation | 16-bit sequence.

    Invariants: ids of one allocator rise strictly, whatever the wall clock does.
    """

    __slots__ = ("_clock", "_incarnation", "_micros", "_node", "_sequence")

    def __init__(self, clock: Clock, node: int = 0, incarnation: int | None = None) -> None:
        self._clock = clock
        self._node = node
        self._incarnation = int.from_bytes(os.urandom(4)) if incarnation is None else incarnation
        self._micros = 0
        self._sequence = 0

    def allocate(self) -> bytes:
        """Return the next id: 16 bytes, big-endian, so that byte order is time order."""
        self._advance(1)
        return _MESSAGE_ID.pack(self._micros, self._node, self._incarnation, self._sequence)

    def allocate_run(self) -> tuple[bytes, int]:
        """Allocate the next `RUN` ids, to be used at once: what they begin with, 15 bytes, and the last byte of the first; the others follow it."""
        self._advance(RUN)
        first = _MESSAGE_ID.pack(self._micros, self._node, self._incarnation, self._sequence)
        self._sequence += RUN - 1
        return first[:-1], first[-1]

    def _advance(self, step: int) -> None:
        """Move to the next id, with a sequence that is a multiple of `step`."""
        micros = int(self._clock.wall() * 1_000_000)
        if micros > self._micros:
            self._micros = micros
            self._sequence = 0
            return
        self._sequence += step - self._sequence % step
        if self._sequence >= _SEQUENCE_LIMIT:
            self._micros += 1
            self._sequence = 0

    def observe(self, message_id: bytes) -> None:
        """Move the clock past an id that came from elsewhere (hybrid logical clock)."""
        micros = _MESSAGE_ID.unpack(message_id)[0]
        if micros > self._micros:
            self._micros = micros
            self._sequence = 0
