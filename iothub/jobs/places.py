"""The files of runs in a data directory: a log of each of the last runs, and a temporary folder for the current one.

Knows no job. The folder has the run's spec and Spark's own files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from iothub.base.errors import NotFoundError, UnavailableError

KEPT_LOGS = 20
LOG_LIMIT_BYTES = 2 << 20  # two files of this size are kept of one run: its newest lines
_MODE = 0o700


class Places:
    """The folder `jobs` of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir.absolute() / "jobs"

    def log_file(self, run_id: int) -> Path:
        return self._path / f"run-{run_id}.log"

    def read_log(self, run_id: int) -> bytes:
        """Return the kept part of a run's log. Raises NotFoundError."""
        file = self.log_file(run_id)
        parts = []
        for part in (_older(file), file):
            with suppress(FileNotFoundError):
                parts.append(part.read_bytes())
        if not parts:
            raise NotFoundError(
                f"{file}: not found: the log is on the machine of the run, or is too old and was deleted"
            )
        return b"".join(parts)

    @contextmanager
    def scratch(self, run_id: int) -> Iterator[Path]:
        """Create a run's folder and remove it at the end; folders of killed runs are removed first."""
        folder = self._path / f"run-{run_id}"
        try:
            self._path.mkdir(mode=_MODE, exist_ok=True)
            self._remove_left()
            self._drop_logs()
            folder.mkdir(mode=_MODE)
        except OSError as error:
            raise UnavailableError(f"{folder}: cannot be created: {error.strerror}") from None
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _remove_left(self) -> None:
        """The lease is held, so no other run of this data directory is active."""
        for folder in self._path.glob("run-*/"):
            shutil.rmtree(folder, ignore_errors=True)

    def _drop_logs(self) -> None:
        logs = sorted(self._path.glob("run-*.log"), key=_number)
        for file in logs[: -KEPT_LOGS + 1]:
            file.unlink(missing_ok=True)
            _older(file).unlink(missing_ok=True)


class RunLog:
    """One run's log, which keeps the newest part. `last`: its last line that is not empty."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._size = 0
        self.last = ""
        try:
            self._opened: IO[bytes] | None = file.open("wb")
        except OSError as error:
            raise UnavailableError(f"{file}: cannot be written: {error.strerror}") from None

    def write(self, octets: bytes) -> None:
        """Append. A full disk does not end the run."""
        with suppress(OSError):
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

    def close(self) -> None:
        with suppress(OSError):
            if self._opened is not None:
                self._opened.close()
                self._opened = None


def _older(file: Path) -> Path:
    return file.with_name(f"{file.name}.1")


def _number(file: Path) -> int:
    digits = file.name.removeprefix("run-").removesuffix(".log")
    return int(digits) if digits.isdecimal() else 0
