"""The data directory of one hub: its files by name, its lock, its pepper, and the facts that a running hub writes.

Knows no table and no format of the stores inside. At most one process works in it: whoever holds `lock` (flock, so that
a killed process never leaves it behind). Accounts are the exception: they may be changed beside a running hub.

Workers (`DataDir.of_worker`) share accounts, stores, keys and configuration; what belongs to one process is in a directory of each, with a lock
of its own. Their supervisor holds the lock of the whole.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import shlex
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from iothub.base.errors import ConfigError, ConflictError, IotHubError, NotFoundError, UnavailableError
from iothub.base.units import format_size_roughly
from iothub.config.profiles import EMBEDDED, URL_FILE, Profile

PEPPER_BYTES = 32
_HUB_ID = re.compile("[0-9a-f]{16}")
_DIRECTORY_MODE = 0o700
_SECRET_MODE = 0o600
_LOCK_ATTEMPTS = 5
_LOCK_PAUSE_S = 0.05
STAGED = "restore-new"  # the files of a restore until all are there
UNFINISHED_RESTORE = "restore-unfinished"  # while they take the place of others
WORKERS = "workers"  # a directory for each worker, by its number
RUN = "run"  # sockets between the processes of this directory
_NOTE_LIMIT_BYTES = 64 << 10  # lock and hub.json are small; a bigger one is not ours


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds the data directory, as written in the lock file."""

    pid: int
    command: str
    address: str

    def __str__(self) -> str:
        at = f", listening on {self.address}" if self.address else ""
        return f"process {self.pid} ({self.command}{at})"


class Lock:
    """The held lock; released by `release` or by the end of the process."""

    def __init__(self, descriptor: int, holder: Holder, directory: Path) -> None:
        self._descriptor = descriptor
        self._directory = directory
        self._write(holder)

    def announce(self, address: str) -> None:
        """Write the address on which clients are served beside the process id. Raises UnavailableError."""
        self._write(Holder(os.getpid(), "iothub serve", address))

    def release(self) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, holder: Holder) -> None:
        note = {"pid": holder.pid, "command": holder.command, "address": holder.address}
        with _unavailable(self._directory):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(note).encode(), 0)


class DataDir:
    """One data directory. Making the object touches nothing.

    `worker`: the number of the worker that it is for, from 1; 0: it is for the whole. `own`: where the files of this one process are.
    """

    def __init__(self, path: Path, worker: int = 0) -> None:
        self.path = path
        self.worker = worker
        self.own = path / WORKERS / str(worker) if worker else path
        self.accounts = path / "accounts.db"
        self.queues = path / "queues.db"
        self.retained = path / "retained.db"
        self.events = path / "events.db"
        self.state = path / "state.db"
        self.checkpoints = path / "checkpoints.db"  # made by a job, if at all: nobody misses it
        self.usage = self.own / "usage.db"
        self.webhooks = self.own / "webhooks.db"
        self.usage_slots = self.own / "usage.map"
        self.config_file = path / "iothub.toml"
        self.url_file = path / URL_FILE
        self.unfinished_file = path / "init-unfinished"
        self.lock_file = self.own / "lock"
        self.pepper_file = path / "pepper"
        self.hub_file = self.own / "hub.json"
        self.api_file = path / "api.json"
        self.api_restarts_file = path / "api-restarts.json"
        self.reloaded_file = path / "reloaded"
        self.applied_file = self.own / "applied-changes.json"
        self.member_file = self.own / "member.json"
        self.id_file = self.own / "hub-id"
        self.installation_file = path / "installation.json"
        self.heartbeat_file = self.own / "heartbeat"
        self.admin_socket = self.own / "admin.sock"
        self.run = path / RUN
        self.store_socket = self.run / "store.sock"
        cluster = path / "cluster"
        self.cluster_files = (
            cluster / f"w{worker}" if worker > 1 else cluster
        )  # certificates of links: of one node each
        self.staged_files = path / STAGED
        self.unfinished_restore = path / UNFINISHED_RESTORE

    @classmethod
    def of_worker(cls, path: Path, number: int) -> DataDir:
        """Return the data directory as a worker sees it."""
        return cls(path, number)

    def workers(self) -> list[DataDir]:
        """Return those of all workers that were ever here, ascending by number, whether they run or not."""
        with _unavailable(self.path), suppress(FileNotFoundError):
            found = sorted(int(each.name) for each in (self.path / WORKERS).iterdir() if _is_number(each.name))
            return [DataDir.of_worker(self.path, number) for number in found]
        return []

    @property
    def is_initialised(self) -> bool:
        """Has `init` finished here? A missing configuration file does not matter."""
        if self._worked_in():
            return True
        return not self._is_unfinished and ((self.has_config and self._has_more) or _holds(self.accounts))

    @property
    def has_config(self) -> bool:
        with _unavailable(self.path):
            return self.config_file.exists()

    def lost_stores(self) -> list[Path]:
        """Return the stores that are missing or empty although others have content: the first hub makes all at once."""
        held = self._worked_in()
        return [path for path in self._stores if path not in held] if held else []

    @property
    def _stores(self) -> tuple[Path, ...]:
        return (self.queues, self.retained, self.events, self.state)

    def _worked_in(self) -> list[Path]:
        """Return the stores that a hub has filled."""
        return [path for path in self._stores if _holds(path)]

    def require_fresh(self, pepper: Path | None = None) -> None:
        """Raise ConflictError when `init` has run before, UnavailableError when remains of a hub must not be overwritten.

        `pepper`: its file, if it is elsewhere.
        """
        self.require_directory()
        self._require_restored()
        if self.has_config and self._is_done:
            raise ConflictError(
                f"{self.path} is initialised already; to start over, move it away or use another --data-dir"
            )
        if self._worked_in():
            self.require_accounts()
        self._require_pepper(pepper or self.pepper_file, has_accounts=_holds(self.accounts))

    @property
    def _is_unfinished(self) -> bool:
        """Did an `init` begin here without finishing?"""
        with _unavailable(self.path):
            return self.unfinished_file.exists()

    @property
    def _is_done(self) -> bool:
        """Is only the configuration left for `init` to make? A pepper without stores was copied here from another hub."""
        if self._worked_in():
            return True
        with _unavailable(self.path):
            return not self._is_unfinished and (self.lock_file.exists() or _holds(self.accounts))

    @property
    def _has_more(self) -> bool:
        """Is there more than a configuration file, which may have been written before `init`?"""
        with _unavailable(self.path):
            return self.pepper_file.exists() or self.lock_file.exists() or _holds(self.accounts)

    def write_profile(self, profile: Profile) -> bool:
        """Write a first configuration and the files it names; say whether they must be edited before `init` can continue. Overwrites nothing.

        Raises:
            ConflictError: A configuration exists.
            UnavailableError: It cannot be written.
        """
        self.require_directory()
        if self.has_config:
            end = "it is initialised" if self._is_done else "run `iothub init` to continue with it"
            raise ConflictError(
                f"{self.config_file} exists and is not overwritten: {end}, or move it away for a new one"
            )
        with _unavailable(self.path):
            self.path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            is_edited_first = bool(profile.url) and not self.url_file.exists()
            if is_edited_first:
                write_atomically(self.url_file, profile.url.encode())
            write_atomically(self.config_file, profile.config.encode())
        return is_edited_first

    def prepare(self, pepper: Path | None = None, *, has_accounts: bool = False) -> None:
        """Make the directory and the pepper, here or in that file; call `finish` when the stores are made. Repeatable after a crash.

        `has_accounts`: accounts exist on a server; their secrets need the pepper that they were made with.

        Raises:
            UnavailableError: The pepper is missing or cannot be written.
            ConfigError: It exists but cannot be used. Nothing was made in either case.
        """
        file = pepper or self.pepper_file
        is_there = self._require_pepper(file, has_accounts=has_accounts)
        is_new = not self.path.exists()
        with _unavailable(self.path):
            self.path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            if not self.lock_file.exists():
                self.unfinished_file.touch(_SECRET_MODE)
        if is_there:
            return
        try:
            _make_pepper(file)
        except UnavailableError:
            if is_new:
                with suppress(OSError):
                    self.unfinished_file.unlink()
                    self.path.rmdir()
            raise

    def _require_pepper(self, file: Path, *, has_accounts: bool) -> bool:
        """Say whether the pepper exists; if so, it is usable. Raises UnavailableError, ConfigError."""
        with _unavailable(file):
            is_there = file.exists()
        if is_there:
            self.pepper(file)
        elif has_accounts:
            raise _no_pepper(file)
        return is_there

    def finish(self) -> None:
        """Mark the directory as initialised. Writes the configuration file unless it exists."""
        with _unavailable(self.path):
            if not self.config_file.exists():
                write_atomically(self.config_file, EMBEDDED.config.encode())
            self.unfinished_file.unlink(missing_ok=True)

    def require_initialised(self) -> None:
        """Raise NotFoundError, with the command to run, if `init` has not run; UnavailableError if the path is no directory."""
        self.require_directory()
        self._require_restored()
        if not self.is_initialised:
            where = shlex.quote(str(self.path))
            raise NotFoundError(f"{self.path} is not initialised yet; run `iothub --data-dir {where} init` first")

    def make_directory(self) -> None:
        """Make only the directory, unless it exists. Raises UnavailableError."""
        self.require_directory()
        with _unavailable(self.path):
            self.path.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)

    def make_own(self) -> None:
        """Make what a worker needs inside an initialised directory: its own folder, and that of the sockets. Raises UnavailableError."""
        for folder in (self.own.parent, self.own, self.run):
            with _unavailable(folder):
                folder.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)

    def _require_restored(self) -> None:
        """Raise UnavailableError after a restore that was interrupted: some files are of the backup, others of before."""
        with _unavailable(self.path):
            if self.unfinished_restore.exists():
                raise UnavailableError(f"{self.path}: a restore was interrupted here; run `iothub restore` again")

    def require_directory(self) -> None:
        """Raise UnavailableError if the path or a part of it is a file."""
        with _unavailable(self.path):
            taken = next((part for part in (self.path, *self.path.parents) if part.exists()), None)
        if taken is not None and not taken.is_dir():
            raise UnavailableError(f"{taken} is a file, expected a directory: use another --data-dir")

    def require_accounts(self) -> None:
        """Raise UnavailableError if the accounts, which `init` made, are missing: a new file would be a hub without tenants."""
        if not _holds(self.accounts):
            how = "is empty" if self.accounts.exists() else "is missing"
            raise UnavailableError(
                f"{self.accounts} {how}: the accounts of this hub are lost; restore a backup of the whole directory"
            )

    def require_writable(self, room_bytes: int = 0) -> None:
        """Raise UnavailableError unless files can be created here, and so much be written.

        Tries it, because permission bits say little, and the free space of a disk nothing of quotas. The file has no name meanwhile.
        """
        with _unavailable(self.path, room_bytes):
            descriptor, name = tempfile.mkstemp(prefix=".probe-", dir=self.path)
            try:
                os.unlink(name)
                if room_bytes:
                    os.posix_fallocate(descriptor, 0, room_bytes)
            finally:
                os.close(descriptor)

    def require_writable_system(self) -> None:
        """Raise UnavailableError on a read-only file system: SQLite cannot read there either, without a clear error."""
        with _unavailable(self.path):
            if os.statvfs(self.path).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def lock(self, command: str, room_bytes: int = 0) -> Lock:
        """Take the directory for this process. `room_bytes`: how much this process will write at least; tried when nobody else can need it.

        Raises:
            ConflictError: Another process holds it; the text says which.
            UnavailableError: The directory cannot be written, or its disk has not so much room.
        """
        with _unavailable(self.path):
            descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _SECRET_MODE)
        try:
            self._take(descriptor)
            if room_bytes:
                self.require_writable(room_bytes)
            return Lock(descriptor, Holder(os.getpid(), command, ""), self.path)
        except OSError as error:
            os.close(descriptor)
            raise UnavailableError(f"{self.lock_file}: cannot be locked: {error.strerror}") from None
        except IotHubError:
            os.close(descriptor)
            raise

    def _take(self, descriptor: int) -> None:
        """Take the lock, with retries: `holder` of another process takes it for an instant to see whether it is free."""
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt + 1 < _LOCK_ATTEMPTS:
                    time.sleep(_LOCK_PAUSE_S)
            else:
                return
        raise ConflictError(f"{self.path} is in use by {self._holder_words()}; stop it first")

    def holder(self) -> Holder | None:
        """Return who holds the lock, None when it is free."""
        try:
            descriptor = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnavailableError(f"{self.lock_file}: cannot be read: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return self._noted_holder() or Holder(0, "unknown", "")
        finally:
            os.close(descriptor)
        return None

    def pepper(self, file: Path | None = None) -> bytes:
        """Return the key of the secrets' HMAC.

        Raises:
            ConfigError: The file is readable by others or is too short.
            UnavailableError: It cannot be read.
        """
        path = file or self.pepper_file
        with _unavailable(path):
            if not path.exists():
                raise _no_pepper(path)
            mode = stat.S_IMODE(path.stat().st_mode)
            pepper = path.read_bytes()
        if mode & 0o077:
            raise ConfigError(f"{path}: readable by others (mode {mode:04o}); run `chmod 600 {path}`")
        if len(pepper) < PEPPER_BYTES:
            raise ConfigError(f"{path}: expected at least {PEPPER_BYTES} bytes, got {len(pepper)}; restore your copy")
        return pepper

    def write_hub(self, facts: Mapping[str, object]) -> None:
        """Write `hub.json`: pid, start, addresses, for `iothub status` and scripts. Removed at a clean stop."""
        with _unavailable(self.path):
            write_atomically(self.hub_file, (json.dumps(facts, indent=2) + "\n").encode())

    def read_hub(self) -> dict[str, object] | None:
        """Return what the running hub wrote, None if nothing is readable."""
        return _read_note(self.hub_file)

    def write_api(self, facts: Mapping[str, object]) -> None:
        """Write `api.json`: where the REST API that the hub has started listens, or why it cannot. Raises UnavailableError."""
        with _unavailable(self.path):
            write_atomically(self.api_file, (json.dumps(facts, indent=2) + "\n").encode())

    def read_api(self) -> dict[str, object] | None:
        """Return what is noted of that process, None if nothing is readable."""
        return _read_note(self.api_file)

    def write_api_restarts(self, facts: Mapping[str, object]) -> None:
        """Write `api-restarts.json`: how often the hub has started that process again, and when it was silent. Raises UnavailableError."""
        with _unavailable(self.path):
            write_atomically(self.api_restarts_file, (json.dumps(facts, indent=2) + "\n").encode())

    def read_api_restarts(self) -> dict[str, object]:
        """Return that; empty: it was never started again."""
        return _read_note(self.api_restarts_file) or {}

    def remove_api(self) -> None:
        """Forget that process; a file that cannot be removed is overwritten by the next one."""
        for file in (self.api_file, self.api_restarts_file):
            with suppress(OSError):
                file.unlink()

    def note_reload(self) -> None:
        """Let the REST API's process know that the hub, or a worker, has read its settings again. A failed write is ignored."""
        with suppress(OSError):
            self.reloaded_file.touch(_SECRET_MODE)

    def last_reload(self) -> float | None:
        """Return when that was, in Unix seconds; None: never."""
        return _modified(self.reloaded_file)

    def write_applied(self, change: int) -> None:
        """Save the last account change up to which the sessions of deleted devices have ended here."""
        with _unavailable(self.path):
            write_atomically(self.applied_file, (json.dumps({"change": change}) + "\n").encode())

    def read_applied(self) -> int | None:
        """Return that change, None if no hub has saved one yet."""
        note = _read_note(self.applied_file)
        change = None if note is None else note.get("change")
        return change if isinstance(change, int) else None

    def write_heartbeat(self) -> None:
        """Save the time, from which the next hub learns when this one last ran. A failed write is ignored."""
        with suppress(OSError):
            self.heartbeat_file.touch(_SECRET_MODE)

    def last_heartbeat(self) -> float | None:
        """Return when a hub, or one of its workers, last ran here, in Unix seconds, None if none has."""
        files = (self.path / self.heartbeat_file.name, *(worker.heartbeat_file for worker in self.workers()))
        return max((moment for file in files if (moment := _modified(file)) is not None), default=None)

    def write_member(self, incarnation: int) -> None:
        """Save which start of its node number this hub is, if several hubs share stores. Raises UnavailableError."""
        with _unavailable(self.path):
            write_atomically(self.member_file, (json.dumps({"incarnation": incarnation}) + "\n").encode())

    def read_member(self) -> int | None:
        """Return that of the last hub here; None: none."""
        note = _read_note(self.member_file)
        incarnation = None if note is None else note.get("incarnation")
        return incarnation if isinstance(incarnation, int) else None

    def hub_id(self) -> str:
        """Return the id of this data directory, generated at the first call. Raises UnavailableError."""
        with _unavailable(self.path):
            known = self.id_file.read_text().strip() if self.id_file.exists() else ""
            if not _HUB_ID.fullmatch(known):
                known = secrets.token_hex(8)
                write_atomically(self.id_file, f"{known}\n".encode())
        return known

    def write_installation(self, installation: str) -> None:
        """Save which installation the stores here belong to. Raises UnavailableError."""
        with _unavailable(self.path):
            write_atomically(self.installation_file, (json.dumps({"installation": installation}) + "\n").encode())

    def read_installation(self) -> str | None:
        """Return that installation, None if no hub has saved it yet."""
        note = _read_note(self.installation_file)
        installation = None if note is None else note.get("installation")
        return installation if isinstance(installation, str) else None

    @contextmanager
    def admin_address(self) -> Iterator[str]:
        """Name the local socket through an open directory: a socket address has at most 107 bytes, a path may be longer. Raises OSError."""
        directory = os.open(self.own, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/{self.admin_socket.name}"
        finally:
            os.close(directory)

    def remove_hub(self) -> None:
        self.hub_file.unlink(missing_ok=True)

    def _noted_holder(self) -> Holder | None:
        note = _read_note(self.lock_file)
        if note is None:
            return None
        pid = note.get("pid")
        return Holder(pid if isinstance(pid, int) else 0, str(note.get("command", "")), str(note.get("address", "")))

    def _holder_words(self) -> str:
        holder = self._noted_holder()
        return str(holder) if holder else "another process"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and name[0] != "0" and len(name) < 4


def _modified(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _holds(path: Path) -> bool:
    """Does the file exist with content?"""
    with _unavailable(path):
        return path.exists() and path.stat().st_size > 0


def _no_pepper(path: Path) -> UnavailableError:
    return UnavailableError(
        f"{path} is missing: without it no generated secret can be checked; restore your copy of the file (mode 0600), "
        "or copy it from another hub with the same accounts"
    )


def _make_pepper(path: Path) -> None:
    if not path.parent.is_dir():
        raise UnavailableError(
            f"{path}: the directory {path.parent} does not exist; create it first, readable by the hub's user"
        )
    with _unavailable(path.parent):
        write_atomically(path, os.urandom(PEPPER_BYTES))


@contextmanager
def _unavailable(path: Path, room_bytes: int = 0) -> Iterator[None]:
    """Describe an operating-system error in one line that names the path. `room_bytes`: how much space is needed, if that is known."""
    try:
        yield
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else str(path)
        raise _explained(error, name, path, room_bytes) from None


def _explained(error: OSError, name: str, path: Path, room_bytes: int) -> IotHubError:
    if error.errno == errno.EROFS:
        return UnavailableError(f"{path}: is on a read-only file system; the hub must be able to write there")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return UnavailableError(f"{name}: permission denied; the hub must be able to read and write {path}")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        needed = f", a start needs {format_size_roughly(room_bytes)}" if room_bytes else ""
        return UnavailableError(f"{path}: the disk is full ({_free_in(path)}{needed}); free some space first")
    return UnavailableError(f"{name}: {error.strerror or error}")


def _free_in(path: Path) -> str:
    try:
        status = os.statvfs(path)
    except OSError as error:
        return error.strerror or str(error)
    return f"{format_size_roughly(status.f_bavail * status.f_frsize)} free"


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside and rename, both synced: after a crash there is the old file or the new one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read_note(path: Path) -> dict[str, object] | None:
    try:
        with path.open("rb") as file:
            note = json.loads(file.read(_NOTE_LIMIT_BYTES))
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None
