"""One SQLite file of ours: opened, checked, upgraded, and its errors turned into ours.

Knows no table: a driver brings its `Schema`. Knows no thread either: `transaction` belongs to one thread at a time, `reading` to any.

Theory: WAL and `synchronous=FULL`, so that a commit that returned survives a power cut. A damaged file is never
repaired in place: rows that can be read are copied to a fresh file (`salvage`), the damaged one is kept beside it, and an
alarm says so.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from iothub.base.clock import Clock
from iothub.base.errors import BackendError, ConflictError, UnavailableError
from iothub.base.units import format_size_roughly
from iothub_services.metrics import probes
from iothub_services.sqlite import salvage
from iothub_services.sqlite.commit_lock import CommitLock

Alarm = Callable[[str, str], None]  # (name, text); an empty text: the cause is gone

SQLITE_NEEDED = (3, 35)  # RETURNING
BUSY_TIMEOUT_MS = 5_000  # the only rival is an administrator's own shell
CHECK_BYTES = 256 << 20  # files up to here are checked whole at open
CHECK_S = 15.0  # larger ones for this long; damage beyond is found when it is read
_PRIVATE = 0o600
_WAL_PAGES = 2_000  # checkpoint after 8 or 16 MiB
_WAL_SHARE = 64  # of the disk, where that is less
_CACHE_BYTES = 32 << 20
_WAL_KEEP_BYTES = 64 << 20

_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some disk space first",
    sqlite3.SQLITE_IOERR: "check the disk (`smartctl`, the kernel's log)",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for the hub's user",
    sqlite3.SQLITE_CANTOPEN: "see whether the directory is there and belongs to the hub's user",
}
"""What to do about errors that come from the disk or from permissions, by primary code."""

SETTLED = "PRAGMA application_id=0"  # inside a transaction

_FULL = {sqlite3.SQLITE_FULL}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


@dataclass(frozen=True, slots=True)
class Schema:
    """What one kind of file holds.

    `upgrades[n]` leads from version n to n + 1. `tables`: those that are copied from a damaged file, and what an operator calls
    their rows; `repairs` run after that and put derived columns right.
    """

    name: str
    version: int
    tables: Mapping[str, str]
    statements: tuple[str, ...]
    upgrades: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()
    page_bytes: int = 4_096  # of new files
    cache_bytes: int = _CACHE_BYTES  # pages in memory, per connection
    is_overwritten: bool = (
        True  # False: pages that become free keep what was in them, also where SQLite is built to write zeros
    )


class Connection(sqlite3.Connection):
    """One that may be lent to another thread for a while."""

    _get_back: Callable[[], None] | None = None

    def lend(self, get_back: Callable[[], None] | None) -> None:
        """`get_back` is called before each statement from now on; None: it is back."""
        self._get_back = get_back

    def execute(self, *args: Any) -> sqlite3.Cursor:
        if self._get_back is not None:
            self._get_back()
        return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        if self._get_back is not None:
            self._get_back()
        return super().executemany(*args)


class Database:
    """An open file.

    Invariants: nothing is written outside `transaction()`; after a failed one every `on_rollback` callback has run.
    """

    def __init__(self, path: Path, schema: Schema, commits: CommitLock | None = None) -> None:
        """`commits`: every commit is made under it; files that share one can be read as of one moment."""
        self.path = path
        self.schema = schema
        self.before_commit: list[Callable[[sqlite3.Connection], None]] = []
        self.after_commit: list[Callable[[], None]] = []
        self.on_rollback: list[Callable[[], None]] = []
        self._is_inside = False
        self._reading = threading.Lock()
        self.commits = commits or CommitLock()
        self.writer = connect(path)
        try:
            self._prepare()
            self.reader = connect(path, is_read_only=True)
        except BaseException:
            self.writer.close()
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One commit for everything inside; nested uses join the outer one.

        Raises BackendError: nothing was written, unless its `is_written` says that this is not certain.
        """
        if self._is_inside:
            yield self.writer
            return
        is_committing = False
        try:
            self.begin()
            yield self.writer
            self.finish()
            is_committing = True
            with self.commits.commit():
                self.commit()
            self.settle()
        except sqlite3.Error as error:
            self.roll_back()
            raise backend_error(error, self.path, is_committing=is_committing) from error
        except BaseException:
            self.roll_back()
            raise
        finally:
            self._is_inside = False

    # The steps of a transaction, for whoever does something between them. Each raises sqlite3.Error.

    def begin(self) -> None:
        """Whatever asks for a transaction from now on is in this one."""
        self._is_inside = True
        self.writer.execute("BEGIN IMMEDIATE")

    def finish(self) -> None:
        for finish in self.before_commit:
            finish(self.writer)

    def commit(self) -> None:
        """Any thread, while nobody else uses the connection."""
        sqlite3.Connection.execute(self.writer, "COMMIT")

    def settle(self) -> None:
        for done in self.after_commit:
            done()

    def roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self.writer.in_transaction:
                self.writer.execute("ROLLBACK")
        self._is_inside = False
        for callback in self.on_rollback:
            callback()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot of what is committed, on the reading connection; another thread waits until it is over."""
        with self._reading:
            try:
                self.reader.execute("BEGIN")
                try:
                    yield self.reader
                finally:
                    self.reader.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise backend_error(error, self.path, is_committing=False) from error

    @property
    def is_salvaged(self) -> bool:
        """Whether a salvage made this file, and nobody has settled yet what it lacks (`SETTLED`)."""
        return bool(self.writer.execute("PRAGMA application_id").fetchone()[0] == salvage.SALVAGED)

    def probe(self) -> None:
        """Commit a page that says what it said before. Raises BackendError: the file takes no writes, or has no room to speak of."""
        with self.transaction() as connection:
            connection.execute(f"PRAGMA user_version={self.schema.version}")
        self.require_room()

    def require_room(self) -> None:
        """Raise BackendError when the disk has no room to speak of."""
        try:
            free_bytes = probes.disk_free_bytes(self.path.parent)
        except OSError as error:
            raise BackendError(f"{self.path.name}: {error.strerror}", retryable=True) from error
        if free_bytes < probes.ROOM_BYTES:
            fact, remedy = explain(_full(), self.path)
            raise BackendError(fact, retryable=True, remedy=remedy)

    def close(self) -> None:
        """Close both connections; the last one folds the WAL into the file."""
        self.reader.close()
        self.writer.close()

    def _prepare(self) -> None:
        version = int(self.writer.execute("PRAGMA user_version").fetchone()[0])
        refuse_future(self.path, version, self.schema.version)
        self._set_durable()
        check(self.writer, self.path.stat().st_size)
        if version < self.schema.version:
            self._upgrade(version)

    def _set_durable(self) -> None:
        self.writer.execute(f"PRAGMA page_size={self.schema.page_bytes}")
        self.writer.execute(f"PRAGMA cache_size=-{self.schema.cache_bytes >> 10}")
        mode = self.writer.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise UnavailableError(
                f"{self.path.name}: the file system offers journal mode {mode!r}, WAL is needed: use a local disk"
            )
        self.writer.execute("PRAGMA synchronous=FULL")
        self.writer.execute(f"PRAGMA wal_autocheckpoint={self._wal_pages()}")
        self.writer.execute(f"PRAGMA journal_size_limit={_WAL_KEEP_BYTES}")
        if not self.schema.is_overwritten:
            self.writer.execute("PRAGMA secure_delete=FAST")
        self.writer.execute("PRAGMA temp_store=MEMORY")

    def _wal_pages(self) -> int:
        """Return after how many pages in the log they are copied into the file, so that it does not take much of a small disk."""
        share = probes.disk_free_and_size(self.path.parent)[1] // _WAL_SHARE // self.schema.page_bytes
        return min(_WAL_PAGES, share) or _WAL_PAGES  # 0: the file system does not say how large it is

    def _upgrade(self, version: int) -> None:
        with self.transaction() as connection:
            if version == 0:
                create(connection, self.schema)
                return
            for step in range(version, self.schema.version):
                for statement in self.schema.upgrades[step]:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version={self.schema.version}")


def open_database(
    path: Path, schema: Schema, clock: Clock, on_alarm: Alarm, commits: CommitLock | None = None
) -> Database:
    """Open or create a file; a damaged one is set aside, its readable rows are copied, and `on_alarm` is called.

    Raises ConflictError for a future schema, UnavailableError when the file or its directory cannot be used.
    """
    if sqlite3.sqlite_version_info < SQLITE_NEEDED:
        raise UnavailableError(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or newer is needed")
    try:
        salvage.finish_interrupted(path)
        return Database(path, schema, commits)
    except OSError as error:
        raise UnavailableError(f"cannot use {path}: {os.strerror(error.errno or 0)}") from error
    except BackendError:
        raise
    except sqlite3.Error as error:
        if not is_damage(error):
            raise backend_error(error, path, is_committing=False) from error
        return _open_salvaged(path, schema, clock, on_alarm, commits, str(error))


def connect(path: Path, *, is_read_only: bool = False) -> Connection:
    """Return a connection in autocommit mode (transactions are explicit) that may be handed to another thread."""
    if not is_read_only:
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE))  # its log gets this mode, too
        keep_private(path)
    return _connect(path, read_only_mode(path) if is_read_only else "mode=rwc")


def _connect(path: Path, mode: str) -> Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    return connection


def read_only_mode(path: Path) -> str:
    """Return how SQLite must open a file that is only read, as a part of its url.

    On a read-only file system SQLite cannot make the index of the log (`-shm`), and reads nothing without one. A file without a log needs none.
    """
    log = path.with_name(f"{path.name}-wal")
    is_whole = not log.exists() or log.stat().st_size == 0
    return "immutable=1" if is_whole and is_on_read_only_system(path) else "mode=ro"


def is_on_read_only_system(path: Path) -> bool:
    """Say whether nobody can write here, such as on a backup that is mounted so. Raises OSError."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


class Seen(NamedTuple):
    """What a file says of itself. `version`: of its schema; a file without tables is empty."""

    version: int
    tables: int


def inspect_file(path: Path) -> Seen:
    """Read what a file is, change nothing and leave nothing behind. Raises BackendError, retryable unless the file is damaged.

    A file that nobody has open has no log, and is read as it stands: SQLite would make a log and its index, which a reader cannot remove.
    """
    mode = read_only_mode(path) if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        with contextlib.closing(_connect(path, mode)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise backend_error(error, path, is_committing=False) from error
    return Seen(version, tables)


def refuse_future(path: Path, version: int, known: int) -> None:
    """Raise ConflictError when a later program has written a file."""
    if version > known:
        raise ConflictError(
            f"{path.name} has schema version {version}, this program knows up to {known}: "
            "start the newer program, or restore a backup"
        )


def keep_private(path: Path) -> None:
    """Make a database readable only by its owner, with its log, if it was restored or made otherwise; what is not there is left out."""
    for file in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        with contextlib.suppress(FileNotFoundError, PermissionError):  # another owner's: he knows why
            if file.stat().st_mode & 0o077:
                file.chmod(_PRIVATE)


def create(connection: sqlite3.Connection, schema: Schema) -> None:
    """Create the tables of `schema` in an empty file, inside the caller's transaction."""
    for statement in schema.statements:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version={schema.version}")


def check(connection: sqlite3.Connection, size_bytes: int) -> None:
    """Walk the pages. Raises sqlite3.DatabaseError with the first thing that is wrong."""
    if size_bytes <= CHECK_BYTES:
        _quick_check(connection)
        return
    is_over = threading.Event()

    def cut() -> None:
        is_over.set()
        connection.interrupt()

    timer = threading.Timer(CHECK_S, cut)
    timer.daemon = True
    timer.start()
    try:
        _quick_check(connection)
    except sqlite3.Error:
        if not is_over.is_set():
            raise  # after an interruption the verdict means nothing
    finally:
        timer.cancel()


def _quick_check(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise Damage(" ".join(str(found).replace("*** in database main ***", "").split()))


class Damage(sqlite3.DatabaseError):
    """The check at open found something wrong."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def is_damage(error: sqlite3.Error) -> bool:
    """Is the content of the file wrong, as opposed to the disk or the permissions?"""
    return _primary_code(error) in _DAMAGED


def backend_error(error: sqlite3.Error, path: Path, *, is_committing: bool) -> BackendError:
    """Translate. Not retryable: damage, and statements that are wrong whatever the disk does."""
    code = _primary_code(error)
    is_ours = isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError | sqlite3.InterfaceError)
    fact, remedy = explain(error, path)
    return BackendError(
        fact,
        retryable=not (is_ours or code in _DAMAGED),
        # SQLite writes the commit mark last: a full disk means that it is not there. A failed sync does not.
        is_written=is_committing and code not in _FULL,
        remedy=remedy,
    )


def explain(error: sqlite3.Error, path: Path) -> tuple[str, str]:
    """Return what happened to a file, and what to do about it.

    Of the disk and of permissions it says the whole path, the free space and the remedy; of anything else the file's name, without a remedy.
    """
    code = _primary_code(error)
    remedy = _REMEDIES.get(code, "")
    if not remedy:
        return f"{path.name}: {error}", ""
    try:
        free_bytes = probes.disk_free_bytes(path.parent)
    except OSError as gone:
        return f"{path}: {error} ({path.parent}: {gone.strerror})", remedy
    if code == sqlite3.SQLITE_READONLY:
        if is_on_read_only_system(path.parent):
            remedy = (
                "the file system is mounted read-only: mount it writable, and see the kernel's log for why it is not"
            )
    elif free_bytes < probes.ROOM_BYTES:  # without room for its log SQLite speaks of an I/O error
        remedy = _REMEDIES[sqlite3.SQLITE_FULL]
    return f"{path}: {error} ({format_size_roughly(free_bytes)} free in {path.parent})", remedy


def _full() -> sqlite3.Error:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def _primary_code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _open_salvaged(
    path: Path, schema: Schema, clock: Clock, on_alarm: Alarm, commits: CommitLock | None, cause: str
) -> Database:
    def create_fresh(fresh: Path) -> sqlite3.Connection:
        connection = connect(fresh)
        connection.execute(f"PRAGMA page_size={schema.page_bytes}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        create(connection, schema)
        return connection

    try:
        outcome = salvage.salvage(path, schema.tables, schema.repairs, create_fresh, clock.wall())
        database = Database(path, schema, commits)
    except (OSError, sqlite3.Error) as error:
        why = "; ".join(explain(error, path)) if isinstance(error, sqlite3.Error) else error
        raise UnavailableError(f"{path} is damaged ({cause}), and its rows could not be copied: {why}") from error
    on_alarm(f"{schema.name}_corrupt", f"{path.name} was damaged ({cause}): {outcome}")
    return database
