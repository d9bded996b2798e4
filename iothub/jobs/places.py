"""Where runs keep things in a data directory: a log of each of the last runs, and a folder of its own for the one under way.

Knows no job. The folder has what must not stay: what the run is told, Spark's own files, and who its process is.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from iothub.base.errors import NotFoundError, UnavailableError
from iothub.config.datadir import write_atomically
from iothub.jobs import process

KEPT_LOGS = 20
LOG_LIMIT_BYTES = 2 << 20  # half of what is kept of one run: its newest lines
_MODE = 0o700
_READ_BYTES = 64 << 10


class Places:
    """The folder `jobs` of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir.absolute() / "jobs"

    def log_file(self, run_id: int) -> Path:
        return self._path / f"run-{run_id}.log"

    def read_log(self, run_id: int) -> bytes:
        """Return what is kept of a run's log. Raises NotFoundError."""
        file = self.log_file(run_id)
        parts = []
        for part in (_older(file), file):
            with suppress(FileNotFoundError):
                parts.append(part.read_bytes())
        if not parts:
            raise NotFoundError(
                f"{file}: there is no such log: it is on the machine where the run was, or was one too many"
            )
        return b"".join(parts)

    @contextmanager
    def scratch(self, run_id: int) -> Iterator[Path]:
        """Make a run's folder; what runs before it have left is removed, their processes first. Removed in the end."""
        folder = self._path / f"run-{run_id}"
        try:
            self._path.mkdir(mode=_MODE, exist_ok=True)
            self._remove_left()
            self._drop_logs()
            folder.mkdir(mode=_MODE)
        except OSError as error:
            raise UnavailableError(f"{folder}: cannot be made: {error.strerror}") from None
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _remove_left(self) -> None:
        """Whoever is here holds the lock: nobody else's run of this data directory is under way."""
        for folder in self._path.glob("run-*/"):
            with suppress(OSError, ValueError):
                name = (folder / "process").read_text()
                if process.is_here(name) and process.lives(name):
                    process.kill_session(int(name.split("/")[-2]))
            shutil.rmtree(folder, ignore_errors=True)

    def _drop_logs(self) -> None:
        logs = sorted(self._path.glob("run-*.log"), key=_number)
        for file in logs[: -KEPT_LOGS + 1]:
            file.unlink(missing_ok=True)
            _older(file).unlink(missing_ok=True)


def note_process(folder: Path, pid: int) -> None:
    """Write down who works in a run's folder, for the next run if this one is killed."""
    name = process.name_of(pid)
    if name is not None:
        write_atomically(folder / "process", name.encode())


class RunLog:
    """One run's log: it takes everything and keeps the newest. `last`: its last line that says something."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._size = 0
        self.last = ""
        try:
            self._opened: IO[bytes] | None = file.open("wb")
        except OSError as error:
            raise UnavailableError(f"{file}: cannot be written: {error.strerror}") from None

    def write(self, octets: bytes) -> None:
        """Add to it, from any thread. A disk that takes nothing ends no run."""
        with self._lock, suppress(OSError):
            lines = [line for line in octets.decode("utf-8", "replace").splitlines() if line.strip()]
            self.last = lines[-1].strip()[:500] if lines else self.last
            if self._opened is None:
                return
            if self._size > LOG_LIMIT_BYTES:
                self._opened.close()
                self._file.replace(_older(self._file))
                self._opened, self._size = self._file.open("wb"), 0
            self._opened.write(octets)
            self._opened.flush()
            self._size += len(octets)

    def take(self, source: IO[bytes]) -> None:
        """Read a pipe to its end."""
        with suppress(OSError, ValueError):
            while octets := source.readline(_READ_BYTES):
                self.write(octets)

    def close(self) -> None:
        with self._lock, suppress(OSError):
            if self._opened is not None:
                self._opened.close()
                self._opened = None


def _older(file: Path) -> Path:
    return file.with_name(f"{file.name}.1")


def _number(file: Path) -> int:
    digits = file.name.removeprefix("run-").removesuffix(".log")
    return int(digits) if digits.isdecimal() else 0
