"""The checkpoint port in plain Python objects, for tests. Nothing survives.

Knows no file and no thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iothub.base.errors import ConflictError
from iothub.records.checkpoint import Pointer
from iothub_services.state.checkpoints import in_use
from iothub_services.state.port import StoredState


class MemoryCheckpoints:
    """Fulfils `CheckpointStore`."""

    def __init__(self) -> None:
        self._pointer: Pointer | None = None
        self._rows: dict[int, dict[tuple[int, str], StoredState]] = {}

    def close(self) -> None:
        """Nothing is open."""

    def pointer(self) -> Pointer | None:
        return self._pointer

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        is_expected = self._pointer == expected
        if is_expected:
            self._pointer = to
        return is_expected

    def rows(self, version: int) -> Iterator[StoredState]:
        rows = self._rows.get(version, {})
        yield from (rows[key] for key in sorted(rows))

    def write(self, version: int, rows: Iterable[StoredState]) -> None:
        self._rows.setdefault(version, {}).update({(row.tenant_id, row.client_id): row for row in rows})

    def versions(self) -> list[int]:
        return sorted(version for version, rows in self._rows.items() if rows)

    def drop(self, version: int) -> int:
        if self._pointer is not None and self._pointer.version == version:
            raise ConflictError(in_use(version))
        return len(self._rows.pop(version, {}))
