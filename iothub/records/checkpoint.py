"""A checkpoint of the session log: the pointer that says what counts, its rows, and the checksum over all of them.

Knows no table and no job: whoever makes checkpoints and whoever starts from one share these formats.

Theory: a checkpoint is what the log says up to a place: the folded record of every session, under a version of its own that nobody reads yet. Then
one compare-and-swap of the pointer makes it the current one. The checksum is a sum, so that the rows may be written and read in any order and
by many workers, each of which adds up its own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from iothub.base.errors import CorruptRecordError
from iothub.records.causes import UNREADABLE, in_words
from iothub.records.events import GENERATION_BITS

POINTER_VERSION = 1
ROW_VERSION = 1

_RUN_BITS = 20
_SUM_MASK = (1 << 64) - 1
_ROW = struct.Struct(">BQ")  # version, offset
_SUMMED = struct.Struct(">IQI")  # tenant, offset, bytes of the client id


@dataclass(frozen=True, slots=True)
class Pointer:
    """What the row `pointer` says. `offsets`: for each partition of the log, up to where it is in the rows."""

    version: int
    offsets: tuple[int, ...]
    rows: int
    checksum: int
    at_ms: int  # Unix time

    @property
    def generation(self) -> int:
        """Of the log: offsets of another one say nothing about it."""
        return max(self.offsets, default=0) >> GENERATION_BITS


def checkpoint_version(at_ms: int, run: int) -> int:
    """Return the version of a new checkpoint: later ones are higher, and two runs in the same millisecond differ by `run`, some number."""
    return at_ms << _RUN_BITS | run & ((1 << _RUN_BITS) - 1)


# --- the pointer


def encode_pointer(pointer: Pointer) -> bytes:
    """Return the stored form: JSON, equal bytes for equal pointers, since it is swapped by comparing them."""
    value = {
        "v": POINTER_VERSION,
        "version": pointer.version,
        "generation": pointer.generation,
        "offsets": list(pointer.offsets),
        "rows": pointer.rows,
        "checksum": f"{pointer.checksum:016x}",
        "at": pointer.at_ms,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_pointer(value: bytes) -> Pointer:
    """Read a pointer. Raises CorruptRecordError: it is damaged, or of another version."""
    try:
        fields: dict[str, Any] = json.loads(value)
        _require_version("checkpoint pointer", fields["v"], POINTER_VERSION)
        offsets, checksum = tuple(fields["offsets"]), int(fields["checksum"], 16)
        pointer = Pointer(fields["version"], offsets, fields["rows"], checksum, fields["at"])
        numbers = (*offsets, pointer.version, pointer.rows, pointer.at_ms)
        is_right = offsets and all(type(number) is int and number >= 0 for number in numbers)
    except UNREADABLE as error:
        raise CorruptRecordError(f"damaged checkpoint pointer ({in_words(error)})") from error
    if not is_right or fields.get("generation") != pointer.generation:
        raise CorruptRecordError("damaged checkpoint pointer (its numbers do not fit together)")
    return pointer


# --- rows


def encode_row(offset: int, record: bytes) -> bytes:
    """Return the stored form of a session's record and the offset that it includes."""
    return _ROW.pack(ROW_VERSION, offset) + record


def decode_row(value: bytes) -> tuple[int, bytes]:
    """Return (offset, record). Raises CorruptRecordError: it is damaged, or of another version."""
    if len(value) <= _ROW.size:
        raise CorruptRecordError(f"damaged row of a checkpoint ({len(value)} bytes)")
    version, offset = _ROW.unpack_from(value)
    _require_version("row of a checkpoint", version, ROW_VERSION)
    return offset, value[_ROW.size :]


def row_checksum(tenant_id: int, client_id: str, offset: int, record: bytes) -> int:
    """Return the checksum of one row, 64 bits."""
    name = client_id.encode()
    summed = b"".join((_SUMMED.pack(tenant_id, offset, len(name)), name, record))
    return int.from_bytes(blake2b(summed, digest_size=8).digest(), "big")


def add_checksums(checksums: Iterable[int]) -> int:
    """Return the checksum of all rows from those of some: a sum, in any order, so that a row that is there twice shows."""
    return sum(checksums) & _SUM_MASK


def _require_version(what: str, version: object, known: int) -> None:
    if version != known or type(version) is not int:
        raise CorruptRecordError(f"damaged {what} (format version {version!r}, expected {known})")
