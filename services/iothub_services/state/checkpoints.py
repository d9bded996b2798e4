"""The checkpoint port: versions of all sessions' records, and the pointer that says which of them counts.

Knows stored records, not what makes a checkpoint and not who starts from one. All methods block.
Formats are in `iothub.records.checkpoint`, which the jobs share that write checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from iothub.base.errors import CorruptRecordError
from iothub.records.checkpoint import Pointer, add_checksums, row_checksum
from iothub_services.state.port import StoredState


class CheckpointStore(Protocol):
    """One contract suite (`iothub.testing.checkpoint_contract`) holds every driver to this."""

    def pointer(self) -> Pointer | None:
        """Which version counts; None: none ever did. Raises CorruptRecordError."""

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        """Let another version count if `expected` does now; False: it does not, and nothing was changed. Durable when it returns.

        Raises BackendError; when its `is_written` says so, look at the pointer.
        """

    def rows(self, version: int) -> Iterator[StoredState]:
        """Every row of a version, ascending by tenant and client id. Raises CorruptRecordError."""

    def write(self, version: int, rows: Iterable[StoredState]) -> None:
        """Add rows to a version that does not count yet; durable when it returns. The same row may be written again."""

    def versions(self) -> list[int]:
        """Every version that has rows, ascending."""

    def drop(self, version: int) -> int:
        """Remove a version's rows; returns how many. Raises ConflictError when it is in use."""

    def close(self) -> None: ...


def verified(pointer: Pointer, rows: Iterable[StoredState]) -> Iterator[StoredState]:
    """Yield the rows of a checkpoint; at their end, raise CorruptRecordError unless they are those that its pointer counted."""
    count = checksum = 0
    for row in rows:
        count += 1
        checksum = add_checksums((checksum, row_checksum(*row)))
        yield row
    if (count, checksum) != (pointer.rows, pointer.checksum):
        raise CorruptRecordError(
            f"checkpoint {pointer.version} has {count} rows with checksum {checksum:016x}, "
            f"its pointer says {pointer.rows} with {pointer.checksum:016x}"
        )


def in_use(version: int) -> str:
    """Say why a version is not dropped."""
    return f"checkpoint {version} is in use: move the pointer to another version first"
