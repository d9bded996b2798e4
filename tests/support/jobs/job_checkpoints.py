"""The checkpoints of jobs as the hub's port sees checkpoints, so that one contract holds both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iothub.records.checkpoint import Pointer
from iothub_services.state.port import StoredState
from iothub_spark.stores.rows import Checkpoints, StateRow


class JobCheckpoints:
    """Fulfils the hub's `CheckpointStore` with a driver of the jobs."""

    def __init__(self, driver: Checkpoints) -> None:
        self.driver = driver

    def pointer(self) -> Pointer | None:
        return self.driver.pointer()

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        return self.driver.move(expected, to)

    def rows(self, version: int) -> Iterator[StoredState]:
        for part in self.driver.parts(version, 3):
            yield from (StoredState(*row) for row in self.driver.rows(version, part))

    def write(self, version: int, rows: Iterable[StoredState]) -> None:
        self.driver.write(version, (StateRow(*row) for row in rows))

    def versions(self) -> list[int]:
        return self.driver.versions()

    def drop(self, version: int) -> int:
        return self.driver.drop(version)

    def close(self) -> None:
        self.driver.close()
