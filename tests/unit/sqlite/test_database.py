"""Opening, durability, transactions, versions, damage."""

from __future__ import annotations

import re
import sqlite3
import threading
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError, UnavailableError
from iothub.base.units import format_size_roughly
from iothub.testing.clock import ManualClock
from iothub_services.metrics import probes
from iothub_services.sqlite.database import (
    Damage,
    Database,
    Schema,
    Seen,
    backend_error,
    check,
    inspect_file,
    open_database,
)
from iothub_services.sqlite.salvage import FRESH_SUFFIX

SCHEMA = Schema(
    name="things",
    version=2,
    tables={"thing": "things", "part": "parts of things"},
    statements=(
        "CREATE TABLE thing (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT)",
        "CREATE TABLE part (thing INTEGER, number INTEGER, b BLOB, PRIMARY KEY (thing, number)) WITHOUT ROWID",
    ),
    upgrades={1: ("ALTER TABLE thing ADD COLUMN name TEXT",)},
    repairs=("DELETE FROM part WHERE thing NOT IN (SELECT id FROM thing)",),
)


class Alarms:
    def __init__(self) -> None:
        self.raised: list[tuple[str, str]] = []

    def __call__(self, name: str, text: str) -> None:
        self.raised.append((name, text))


def opened(path: Path, schema: Schema = SCHEMA, alarms: Alarms | None = None) -> Database:
    return open_database(path, schema, ManualClock(), alarms or Alarms())


def filled(path: Path, things: int = 60) -> None:
    database = opened(path)
    with database.transaction() as connection:
        connection.executemany("INSERT INTO thing VALUES (?, ?)", [(i, "n" * 500) for i in range(1, things + 1)])
        connection.executemany(
            "INSERT INTO part VALUES (?, ?, ?)",
            [(i, n, bytes([i]) * 300) for i in range(1, things + 1) for n in (1, 2)],
        )
    database.close()


def damage(path: Path, pages: list[int]) -> None:
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xaa" * 4096)


def leaves(path: Path, table: str) -> list[int]:
    """Return the leaf pages of a table, left to right, by walking the file as the format says."""
    connection = sqlite3.connect(path)
    root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    connection.close()
    content = path.read_bytes()

    def walk(page: int) -> list[int]:
        start = (page - 1) * 4096 + (100 if page == 1 else 0)
        kind = content[start]
        if kind in (0x0D, 0x0A):
            return [page]
        count = int.from_bytes(content[start + 3 : start + 5])
        cells = [int.from_bytes(content[start + 12 + 2 * index : start + 14 + 2 * index]) for index in range(count)]
        base = (page - 1) * 4096
        children = [int.from_bytes(content[base + cell : base + cell + 4]) for cell in cells]
        return [leaf for child in [*children, int.from_bytes(content[start + 8 : start + 12])] for leaf in walk(child)]

    return walk(root)


def test_database_is_durable_by_its_settings(tmp_path: Path) -> None:
    """WAL and synchronous=FULL: a commit that returned survives a power cut."""
    database = opened(tmp_path / "things.db")

    assert database.writer.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert database.writer.execute("PRAGMA synchronous").fetchone()[0] == 2
    database.close()


def test_database_keeps_what_was_committed_and_nothing_else(tmp_path: Path) -> None:
    """A failed transaction leaves nothing and runs the callbacks."""
    database = opened(tmp_path / "things.db")
    rolled_back: list[bool] = []
    database.on_rollback.append(lambda: rolled_back.append(True))
    with database.transaction() as connection, database.transaction() as nested:
        assert nested is connection
        connection.execute("INSERT INTO thing VALUES (1, 'kept')")
    with pytest.raises(BackendError) as caught, database.transaction() as connection:
        connection.executemany("INSERT INTO thing VALUES (?, 'lost')", [(2,), (1,)])

    with database.reading() as connection:
        assert connection.execute("SELECT id, name FROM thing").fetchall() == [(1, "kept")]
    assert (caught.value.retryable, caught.value.is_written) == (False, False)
    assert rolled_back == [True]
    database.close()


def test_database_that_is_full_says_that_nothing_was_written(tmp_path: Path) -> None:
    """Retryable, certain; and the next transaction works when there is room again."""
    database = opened(tmp_path / "things.db")
    database.writer.execute("PRAGMA max_page_count=8")
    with pytest.raises(BackendError) as caught, database.transaction() as connection:
        connection.executemany("INSERT INTO thing VALUES (?, ?)", [(i, "x" * 4000) for i in range(1, 30)])
    assert (caught.value.retryable, caught.value.is_written) == (True, False)
    path = tmp_path / "things.db"
    assert re.fullmatch(
        rf"{path}: database or disk is full \([\d.]+ \w+ free in {tmp_path}\); free some disk space first",
        str(caught.value),
    )

    database.writer.execute("PRAGMA max_page_count=1000")
    with database.transaction() as connection:
        connection.execute("INSERT INTO thing VALUES (1, 'x')")
    database.close()


def test_probe_really_writes(tmp_path: Path) -> None:
    """An empty transaction would succeed on any disk."""
    database = opened(tmp_path / "things.db")
    wal = tmp_path / "things.db-wal"
    before = wal.stat().st_size

    database.probe()

    assert wal.stat().st_size > before
    assert database.writer.execute("PRAGMA user_version").fetchone() == (2,)
    database.close()


def test_probe_of_a_disk_without_room_to_speak_of_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page still finds a place in the log, the next message does not."""
    database = opened(tmp_path / "things.db")
    monkeypatch.setattr(probes, "disk_free_bytes", lambda _path: 100_000)

    with pytest.raises(BackendError, match="database or disk is full"):
        database.probe()

    database.close()


def test_probe_of_a_file_that_takes_no_writes_fails(tmp_path: Path) -> None:
    """The file system became read-only."""
    database = opened(tmp_path / "things.db")
    database.writer.execute("PRAGMA query_only=1")

    with pytest.raises(BackendError, match="readonly"):
        database.probe()

    database.close()


def test_error_of_a_commit_is_uncertain_unless_the_disk_was_full() -> None:
    """A failed sync may have written; a full disk has not written the commit mark."""

    def of(code: int, *, is_committing: bool) -> tuple[bool, bool]:
        error = sqlite3.OperationalError("x")
        error.sqlite_errorcode = code
        translated = backend_error(error, Path("x.db"), is_committing=is_committing)
        return translated.retryable, translated.is_written

    assert of(sqlite3.SQLITE_FULL, is_committing=True) == (True, False)
    assert of(sqlite3.SQLITE_IOERR_FSYNC, is_committing=True) == (True, True)
    assert of(sqlite3.SQLITE_IOERR_WRITE, is_committing=False) == (True, False)
    assert of(sqlite3.SQLITE_CORRUPT, is_committing=False) == (False, False)


def test_database_of_a_future_schema_is_refused_by_name(tmp_path: Path) -> None:
    """Exit code 4, both versions named, the file untouched."""
    path = tmp_path / "things.db"
    opened(path, Schema("things", 3, SCHEMA.tables, SCHEMA.statements)).close()
    before = path.read_bytes()

    with pytest.raises(ConflictError, match=r"things.db has schema version 3, this program knows up to 2") as caught:
        opened(path)

    assert caught.value.exit_code == 4
    assert path.read_bytes() == before


def test_database_of_an_older_schema_is_upgraded_in_one_transaction(tmp_path: Path) -> None:
    """Step by step, and the number moves with it."""
    path = tmp_path / "things.db"
    old = ("CREATE TABLE thing (id INTEGER PRIMARY KEY AUTOINCREMENT)",)
    opened(path, Schema("things", 1, SCHEMA.tables, old)).close()

    database = opened(path)

    assert database.writer.execute("PRAGMA user_version").fetchone()[0] == 2
    database.writer.execute("INSERT INTO thing (name) VALUES ('x')")
    database.close()


def test_database_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    """Exit code 7 and one line, whether the directory is missing or a file is in its place."""
    with pytest.raises(UnavailableError, match="cannot use") as caught:
        opened(tmp_path / "missing" / "things.db")
    assert caught.value.exit_code == 7
    (tmp_path / "things.db").mkdir()
    with pytest.raises(UnavailableError):
        opened(tmp_path / "things.db")


@pytest.mark.parametrize("table", ["thing", "part"])
def test_rows_before_a_damaged_page_are_kept(tmp_path: Path, table: str) -> None:
    """The file is set aside, rows up to the damage are copied, an alarm says so, and the next start is clean."""
    path = tmp_path / "things.db"
    filled(path)
    pages = leaves(path, table)
    damage(path, [pages[2], pages[5]])
    alarms = Alarms()

    database = opened(path, alarms=alarms)

    things = database.writer.execute("SELECT count(*) FROM thing").fetchone()[0]
    parts = database.writer.execute("SELECT count(*) FROM part").fetchone()[0]
    kept, per_page = (things, 8) if table == "thing" else (parts, 13)
    assert per_page < kept <= 2 * per_page
    assert things == 60 or parts == 2 * things
    ((name, text),) = alarms.raised
    assert name == "things_corrupt"
    assert "things.db was damaged" in text
    assert "things.db.corrupt-20231114T221320Z" in text
    assert (tmp_path / "things.db.corrupt-20231114T221320Z").exists()
    database.close()
    opened(path, alarms=alarms).close()
    assert len(alarms.raised) == 1


def test_file_that_is_looked_at_is_left_as_it_was(tmp_path: Path) -> None:
    """Nobody who looks makes files that he cannot remove; what a hub has not folded into its file yet is seen."""
    path = tmp_path / "things.db"
    filled(path)

    assert inspect_file(path) == Seen(2, 3)
    assert [file.name for file in tmp_path.iterdir()] == ["things.db"]

    database = opened(path)
    with database.transaction() as connection:
        connection.execute("CREATE TABLE more (id INTEGER)")
    assert inspect_file(path) == Seen(2, 4)
    database.close()


def test_two_threads_read_one_after_the_other(tmp_path: Path) -> None:
    """The writing thread of the queues may look for one that another hub has made, while a page is read."""
    filled(tmp_path / "things.db")
    database = opened(tmp_path / "things.db")
    found: list[object] = []
    has_begun = threading.Event()

    def read() -> None:
        has_begun.set()
        try:
            with database.reading() as connection:
                found.append(connection.execute("SELECT count(*) FROM thing").fetchone())
        except BackendError as error:
            found.append(error)

    with database.reading() as connection:
        other = threading.Thread(target=read)
        other.start()
        has_begun.wait()
        other.join(0.05)
        assert connection.execute("SELECT count(*) FROM part").fetchone() == (120,)
    other.join()

    assert found == [(60,)]
    database.close()


def test_counter_of_an_autoincrement_table_survives_a_salvage(tmp_path: Path) -> None:
    """Offsets of a log never restart, also when its newest rows were trimmed: the fold would ignore new events with used offsets."""
    path = tmp_path / "things.db"
    filled(path)
    database = opened(path)
    with database.transaction() as connection:
        connection.execute("INSERT INTO thing VALUES (900, 'x')")
        connection.execute("DELETE FROM thing WHERE id = 900")
    database.close()
    damage(path, [leaves(path, "part")[0]])

    database = opened(path)

    with database.transaction() as connection:
        assert connection.execute("INSERT INTO thing (name) VALUES ('y') RETURNING id").fetchone() == (901,)
    database.close()


@pytest.mark.parametrize("content", [b"\0" * 8192, b"not a database at all" * 500], ids=["zeros", "text"])
def test_file_that_is_no_database_is_set_aside(tmp_path: Path, content: bytes) -> None:
    """Nothing to save, but the hub starts and the evidence stays."""
    path = tmp_path / "things.db"
    path.write_bytes(content)
    alarms = Alarms()

    opened(path, alarms=alarms).close()

    assert [name for name, _ in alarms.raised] == ["things_corrupt"]
    assert (tmp_path / "things.db.corrupt-20231114T221320Z").read_bytes() == content


def test_second_damage_in_the_same_second_overwrites_no_evidence(tmp_path: Path) -> None:
    """Names are made unique."""
    path = tmp_path / "things.db"
    for _ in range(2):
        path.write_bytes(b"x" * 5000)
        opened(path).close()

    assert sorted(each.name for each in tmp_path.glob("*.corrupt-*")) == [
        "things.db.corrupt-20231114T221320Z",
        "things.db.corrupt-20231114T221320Z-2",
    ]


def test_salvage_interrupted_between_its_renames_is_finished(tmp_path: Path) -> None:
    """A crash at any step loses nothing; the stale WAL of the damaged file is never applied to the fresh one."""
    path = tmp_path / "things.db"
    filled(path, things=3)
    path.rename(tmp_path / f"things.db{FRESH_SUFFIX}")
    (tmp_path / "things.db-wal").write_bytes(b"stale")

    database = opened(path)

    assert database.writer.execute("SELECT count(*) FROM thing").fetchone()[0] == 3
    assert not (tmp_path / f"things.db{FRESH_SUFFIX}").exists()
    database.close()


def test_salvage_interrupted_before_its_renames_is_forgotten(tmp_path: Path) -> None:
    """The half-made fresh file goes, the file in place counts."""
    path = tmp_path / "things.db"
    filled(path, things=3)
    (tmp_path / f"things.db{FRESH_SUFFIX}").write_bytes(b"half")

    database = opened(path)

    assert database.writer.execute("SELECT count(*) FROM thing").fetchone()[0] == 3
    assert not (tmp_path / f"things.db{FRESH_SUFFIX}").exists()
    database.close()


def test_check_of_a_large_file_is_cut_short_and_finds_what_it_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the check at open is bounded; what it saw until then counts."""
    path = tmp_path / "things.db"
    filled(path)
    damage(path, [leaves(path, "thing")[0]])
    connection = sqlite3.connect(path)

    with pytest.raises(Damage):
        check(connection, 1 << 40)
    connection.close()


@pytest.mark.parametrize(
    ("code", "free_bytes", "remedy"),
    [
        (sqlite3.SQLITE_IOERR_WRITE, 1 << 30, "check the disk (`smartctl`, the kernel's log)"),
        (sqlite3.SQLITE_IOERR_WRITE, 4096, "free some disk space first"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, 1 << 30, "make the file and its directory writable for the hub's user"),
        (sqlite3.SQLITE_READONLY, 4096, "make the file and its directory writable for the hub's user"),
        (sqlite3.SQLITE_CANTOPEN, 1 << 30, "see whether the directory is there and belongs to the hub's user"),
    ],
)
def test_error_of_the_disk_says_where_and_what_to_do(
    code: int, free_bytes: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for its log SQLite speaks of an I/O error."""
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    monkeypatch.setattr(probes, "disk_free_bytes", lambda _path: free_bytes)

    found = backend_error(error, tmp_path / "state.db", is_committing=False)

    assert found.fact == f"{tmp_path}/state.db: what SQLite says ({format_size_roughly(free_bytes)} free in {tmp_path})"
    assert found.remedy == remedy


def test_error_of_a_read_only_file_system_is_no_matter_of_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system with errors becomes read-only by itself."""
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY
    monkeypatch.setattr("iothub_services.sqlite.database.is_on_read_only_system", lambda _path: True)

    remedy = backend_error(error, tmp_path / "state.db", is_committing=False).remedy

    assert (
        remedy == "the file system is mounted read-only: mount it writable, and see the kernel's log for why it is not"
    )
