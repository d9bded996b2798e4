"""Backups: the moment of which they are, what is in them, and what an attempt that fails leaves."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from iothub.backup import files, making, manifest
from iothub.base.errors import BackendError, ConflictError, NotFoundError, UnavailableError
from iothub.config.datadir import DataDir
from tests.unit.backup.conftest import Make, Things, rows

LONG_S = 30.0


class OwnHub:
    """A hub in this process. `while_held`: called between a hold and its release."""

    def __init__(self, things: Things, while_held: Callable[[], None] = lambda: None, hold_s: float = LONG_S) -> None:
        self._things = things
        self._while_held = while_held
        self._hold_s = hold_s
        self.holds = 0

    def hold(self) -> str:
        self.holds += 1
        hold = self._things.commits.hold(LONG_S, self._hold_s)
        self._while_held()
        return hold

    def release(self, hold: str) -> bool:
        return self._things.commits.release(hold)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_every_file_is_of_one_moment(things: Things, make: Make, tmp_path: Path) -> None:
    """What is committed while the files are opened one after the other is in none of them."""
    with ThreadPoolExecutor() as threads:
        writing: list[Future[None]] = []

        def write() -> None:
            writing.append(threads.submit(things.put, 2))
            wait(writing, timeout=0.1)  # it would be over by then if nothing kept it back

        make(OwnHub(things, write))
        writing[0].result(LONG_S)

    assert [rows(tmp_path / "backup" / file.name) for file in things.files] == [1, 1]
    assert [rows(file) for file in things.files] == [2, 2]


def test_what_is_committed_during_the_copy_is_not_in_it(things: Things, make: Make, tmp_path: Path) -> None:
    numbers = iter(range(2, 100))

    make(OwnHub(things), on_progress=lambda _done, _of: things.put(next(numbers)))

    assert {rows(tmp_path / "backup" / file.name) for file in things.files} <= {2}, "the small files come before"
    assert rows(things.files[0]) > 3


def test_file_that_is_made_before_it_is_opened_is_in_it(things: Things, make: Make, tmp_path: Path) -> None:
    """The first job makes `checkpoints.db`, then trims the log: the log without the checkpoint is sessions lost."""
    made = things.data_dir.checkpoints

    make(OwnHub(things, lambda: things.make_beside(made)))

    assert made.name in names(tmp_path / "backup")


def test_files_of_two_moments_are_no_backup(things: Things, make: Make, tmp_path: Path) -> None:
    """A hold that has ended too early is tried again, and then given up."""
    numbers = iter(range(2, 100))
    hub = OwnHub(things, lambda: things.put(next(numbers)), hold_s=0.0)

    with pytest.raises(UnavailableError, match="overloaded; try again"):
        make(hub)

    assert hub.holds == making.HOLDS
    assert not (tmp_path / "backup").exists()


def test_second_attempt_may_find_one_moment(things: Things, make: Make, tmp_path: Path) -> None:
    disturbing = iter([lambda: things.put(2)])
    hub = OwnHub(things, lambda: next(disturbing, lambda: None)(), hold_s=0.0)

    make(hub)

    assert hub.holds == 2
    assert [rows(tmp_path / "backup" / file.name) for file in things.files] == [2, 2]


def segments_made(things: Things) -> list[Path]:
    """Two segments of a journal, and what else is in its folder."""
    folder = things.data_dir.path / "queues.journal"
    folder.mkdir()
    found = [folder / f"{number:020d}.0123456789abcdef.segment" for number in (9, 10)]
    for path in (*found, folder / "next.spare", folder / f"{8:020d}.damaged"):
        path.write_bytes(path.name.encode().ljust(1_000, b"."))
    return found


def test_journal_of_a_hub_that_does_not_run_is_copied_whole(things: Things, make: Make, tmp_path: Path) -> None:
    found = segments_made(things)

    make()

    copied = tmp_path / "backup" / "queues.journal"
    assert names(copied) == [path.name for path in found]
    assert [(copied / path.name).read_bytes() for path in found] == [path.read_bytes() for path in found]


def test_of_the_newest_segment_of_a_hub_only_its_beginning_is_copied(
    things: Things, make: Make, tmp_path: Path
) -> None:
    """The hub writes on to that, and deletes others, when the hold is over."""
    older, newest = segments_made(things)
    before = older.read_bytes(), newest.read_bytes()

    def write_on(done: int, of: int) -> None:
        assert done <= of
        if older.exists() and (tmp_path / "backup" / things.files[0].name).exists():
            older.unlink()
            newest.write_bytes(b"later".ljust(1_000, b"."))

    made = make(OwnHub(things), on_progress=write_on)

    copied = tmp_path / "backup" / "queues.journal"
    assert (copied / older.name).read_bytes() == before[0]
    assert (copied / newest.name).read_bytes() == before[1][: len((copied / newest.name).read_bytes())]
    assert {entry.name for entry in made.files} >= {f"queues.journal/{path.name}" for path in (older, newest)}


def test_backup_has_the_files_that_a_hub_needs(things: Things, make: Make, tmp_path: Path) -> None:
    """Keys, settings, the archive, whatever somebody has put there; not what belongs to a process or was set aside."""
    path = things.data_dir.path
    (path / "archive/events").mkdir(parents=True)
    kept = ["archive/events/1.parquet", "iothub.toml", "applied-changes.json", "own.pem"]
    left = [
        "lock",
        "hub.json",
        "usage.map",
        "queues.db.corrupt-7",
        ".applied-changes.json-abcd1234",
        "replaced-20260101T000000Z",
        "backup.json",  # somebody has copied a backup here by hand
        "backup-unfinished",
    ]
    for name in (*kept, *left):
        (path / name).write_text(name)
    for folder in ("jobs", "restore-new"):
        (path / folder).mkdir()
        (path / folder / "file").touch()
    os.mkfifo(path / "admin.sock")

    made = make()

    found = ["events.db", "pepper", "queues.db", *kept]
    assert names(tmp_path / "backup") == sorted([*found, "backup.json"])
    assert [entry.name for entry in made.files] == sorted(found)
    assert made == manifest.read(tmp_path / "backup")
    assert made.elsewhere == ("the moon",)


def test_copies_keep_mode_and_time(things: Things, make: Make, tmp_path: Path) -> None:
    """The time of `heartbeat` says until when a hub lived."""
    heartbeat, shown = things.data_dir.heartbeat_file, things.data_dir.path / "motd"
    for file, mode in ((heartbeat, 0o600), (shown, 0o644)):
        file.touch()
        file.chmod(mode)
    os.utime(heartbeat, (5, 5))

    make()

    copies = [(tmp_path / "backup" / name).stat() for name in ("heartbeat", "motd", "pepper", "queues.db")]
    assert [stat.S_IMODE(each.st_mode) for each in copies] == [0o600, 0o644, 0o600, 0o600]
    assert copies[0].st_mtime == 5
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o700


def test_progress_reaches_its_end(things: Things, make: Make) -> None:
    seen: list[tuple[int, int]] = []

    make(on_progress=lambda done, of: seen.append((done, of)))

    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_interrupted_backup_leaves_nothing(
    things: Things, make: Make, tmp_path: Path, error: type[BaseException]
) -> None:
    def stop(_done: int, _of: int) -> None:
        raise error

    with pytest.raises(error):
        make(on_progress=stop)

    assert not (tmp_path / "backup").exists()
    (tmp_path / "backup").mkdir()
    with pytest.raises(error):
        make(on_progress=stop)
    assert names(tmp_path / "backup") == [], "a folder that was there stays"
    things.put(2)


def test_folder_with_files_is_refused(make: Make, tmp_path: Path) -> None:
    """Nothing is overwritten: neither a backup nor anything else."""
    make()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()

    with pytest.raises(ConflictError, match="has a backup already: name a new folder"):
        make()
    with pytest.raises(ConflictError, match="is not empty"):
        make(folder="other")
    assert names(tmp_path / "other") == ["mine"]


def test_folder_of_another_backup_under_way_is_refused(make: Make, tmp_path: Path) -> None:
    """And is left as it is."""
    refused: list[str] = []

    def try_too(done: int, of: int) -> None:
        if done == of:
            with pytest.raises(ConflictError) as error:
                make()
            refused.append(str(error.value))

    made = make(on_progress=try_too)

    assert len(refused) == 1
    assert "another backup is being made there, or was killed" in refused[0]
    assert len(made.files) == 3
    assert names(tmp_path / "backup") == ["backup.json", "events.db", "pepper", "queues.db"]


def test_folder_that_was_just_claimed_is_refused(make: Make, tmp_path: Path) -> None:
    """Two backups at the same time never share a folder; one that was killed leaves a mark and no manifest."""
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / files.UNFINISHED).touch()

    with pytest.raises(ConflictError, match="another backup is being made there, or was killed"):
        make()


def test_folder_in_the_data_directory_is_refused(make: Make) -> None:
    """The next backup would have the last one in it."""
    with pytest.raises(ConflictError, match="is in the data directory"):
        make(folder="hub/backup")


def test_no_room_is_said_before_anything_is_copied(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "disk_free_bytes", lambda _path: 1000)

    with pytest.raises(UnavailableError, match=r"needs up to \d+ bytes, 1000 bytes are free") as refused:
        make()

    assert refused.value.exit_code == 7
    assert not (tmp_path / "backup").exists()


def test_logs_that_grow_too_far_end_the_backup(
    things: Things, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's disk is not filled by somebody who reads slowly."""
    needed = 2 * sum(path.stat().st_size for path in things.data_dir.path.iterdir())
    monkeypatch.setattr(making, "disk_free_bytes", lambda _path: needed)
    numbers = iter(range(2, 10_000_000))

    def write(_done: int, _of: int) -> None:
        things.put(*(next(numbers) for _ in range(20_000)))

    with pytest.raises(UnavailableError, match=r"the files \*\.db-wal in .* have taken half of the free disk space"):
        make(on_progress=write)

    assert not (tmp_path / "backup").exists()


def test_damaged_database_is_no_backup(things: Things, make: Make, tmp_path: Path) -> None:
    things.put(*range(2, 3_000))
    things.close()
    with things.files[0].open("r+b") as file:
        file.seek(8192)
        file.write(b"\xaa" * 4096)

    with pytest.raises(BackendError, match=r"queues\.db is damaged .* restart the hub"):
        make()

    assert not (tmp_path / "backup").exists()


def test_directory_with_an_interrupted_repair_is_refused(things: Things, make: Make) -> None:
    (things.data_dir.path / "queues.db.salvaged").touch()

    with pytest.raises(UnavailableError, match="start the hub, then make the backup"):
        make()


def test_folder_that_cannot_be_made_is_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UnavailableError, match=r"file.*Not a directory"):
        make(folder="file/backup")
    with pytest.raises(UnavailableError, match=r"file"):
        make(folder="file")


def test_folder_without_a_manifest_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is no backup, or one that was not finished"):
        manifest.read(tmp_path)


def test_backup_of_several_workers_has_what_each_keeps(things: Things, make: Make, tmp_path: Path) -> None:
    """Their usage counters as databases, and what the next start knows of them; no socket, no lock, no file of a process."""
    worker = DataDir.of_worker(things.data_dir.path, 2)
    worker.make_own()
    things.make_beside(worker.usage)
    worker.write_member(7)
    worker.write_hub({"pid": 1})
    worker.usage_slots.touch()
    (worker.run / "store.sock").touch()
    worker.lock("iothub serve").release()

    made = make()

    own = [entry for entry in made.files if entry.name.startswith(("workers", "run"))]
    assert [entry.name for entry in own] == ["workers/2/member.json", "workers/2/usage.db"]
    assert rows(tmp_path / "backup" / "workers/2/usage.db") == 0
