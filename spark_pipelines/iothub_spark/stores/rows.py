"""Session rows as jobs read them, of the live state store or of one version of the checkpoint; and the checkpoints themselves as jobs write them.

Knows rows as bytes. A part is a range of the keys that `iothub.records.keys.state_key` makes, so that many tasks share a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from iothub.records.checkpoint import Pointer

Offsets = tuple[int, ...]


class StateRow(NamedTuple):
    """One session. `offset`: of the last event that its record includes."""

    tenant_id: int
    client_id: str
    offset: int
    record: bytes


class Part(NamedTuple):
    """The rows from key `start` on and below key `stop`; an empty `stop`: to the end."""

    start: bytes = b""
    stop: bytes = b""


class States(Protocol):
    """The live session states, to read. All methods block and raise BackendError."""

    def applied(self) -> Offsets:
        """The log up to here is in the rows; () in a new store."""

    def parts(self, pieces: int) -> list[Part]:
        """Return about this number of parts that together are everything."""

    def rows(self, part: Part) -> Iterator[StateRow]: ...

    def close(self) -> None: ...


class Checkpoints(Protocol):
    """Versions of checkpoints, the pointer, and marks. All methods block and raise BackendError."""

    def pointer(self) -> Pointer | None:
        """Which version counts. Raises CorruptRecordError."""

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        """Let another version count if `expected` does now; durable when it returns."""

    def write(self, version: int, rows: Iterable[StateRow]) -> None:
        """Add rows to a version that does not count. The same row may be written again, by another task too."""

    def parts(self, version: int, pieces: int) -> list[Part]: ...

    def rows(self, version: int, part: Part) -> Iterator[StateRow]:
        """Yield the rows of a part, ascending. Raises CorruptRecordError."""

    def get(self, version: int, keys: list[tuple[int, str]]) -> list[StateRow]: ...

    def versions(self) -> list[int]:
        """Every version that has rows, ascending."""

    def drop(self, version: int) -> int:
        """Remove the rows of a version that does not count; returns how many."""

    def marks(self) -> dict[str, bytes]: ...

    def set_mark(self, name: str, value: bytes | None) -> None:
        """Durable when it returns. None removes it."""

    def close(self) -> None: ...
