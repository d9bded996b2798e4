"""A data directory with databases that commit under one lock, as a hub's do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.backup import making
from iothub.backup.making import HubHold, Order
from iothub.backup.manifest import Manifest
from iothub.config.datadir import DataDir
from iothub.testing.clock import ManualClock
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import Database, Schema, open_database

SCHEMA = Schema("things", 1, {"thing": "things"}, ("CREATE TABLE thing (id INTEGER PRIMARY KEY)",))

Make = Callable[..., Manifest]


class Things:
    """Two databases of one data directory, and the rows that are put into both."""

    def __init__(self, path: Path) -> None:
        self.data_dir = DataDir(path)
        self.commits = CommitLock()
        self.files = (self.data_dir.queues, self.data_dir.events)
        self._opened = [self._open(file) for file in self.files]

    def _open(self, file: Path) -> Database:
        return open_database(file, SCHEMA, ManualClock(), lambda _name, _text: None, self.commits)

    def put(self, *numbers: int) -> None:
        """Commit to one file, then to the other."""
        for database in self._opened:
            with database.transaction() as connection:
                connection.executemany("INSERT INTO thing VALUES (?)", [(number,) for number in numbers])

    def make_beside(self, file: Path) -> None:
        """Make one more database as another process does, which does not know the lock."""
        self._opened.append(open_database(file, SCHEMA, ManualClock(), lambda _name, _text: None))

    def close(self) -> None:
        for database in self._opened:
            database.close()


def rows(file: Path) -> int:
    database = open_database(file, SCHEMA, ManualClock(), lambda _name, _text: None)
    with closing(database):
        return int(database.reader.execute("SELECT count(*) FROM thing").fetchone()[0])


@pytest.fixture
def things(tmp_path: Path) -> Iterator[Things]:
    path = tmp_path / "hub"
    path.mkdir()
    (path / "pepper").write_bytes(bytes(32))
    (path / "pepper").chmod(0o600)
    made = Things(path)
    made.put(1)
    yield made
    made.close()


@pytest.fixture
def make(things: Things, tmp_path: Path) -> Make:
    """Make a backup in the folder `backup`."""

    def run(
        hub: HubHold | None = None, folder: str = "backup", on_progress: Callable[[int, int], None] | None = None
    ) -> Manifest:
        order = Order(things.data_dir, tmp_path / folder, "1.2.3", ("the moon",), hub)
        return making.make(order, ManualClock(), on_progress or (lambda _done, _of: None))

    return run
