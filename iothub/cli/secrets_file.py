"""Where generated secrets are written, once: a new file or standard output. On disk before the devices exist, removed if the import fails.

Knows no device.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Protocol

from iothub.base.errors import BackendError, ConflictError, IotHubError, PartlyDoneError, UnavailableError
from iothub.cli import output

_MODE = 0o600
_LOOK = "check with `iothub device list TENANT`"
_MAYBE = f"the database failed, maybe after storing the devices; {_LOOK}"


class Secrets(Protocol):
    """A place for secrets, as a context: when it ends with an error, the secrets are void, but for what is done of work in parts."""

    def write(self, lines: Iterable[str]) -> None:
        """Store secrets behind those that are there, durably. Raises UnavailableError."""

    def __enter__(self) -> Secrets: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SecretsFile:
    """A new file, created at once and readable by its owner only; a file with content is never touched.

    A killed import leaves an empty file: it is reused, unless that import still runs and holds its lock.

    Raises:
        ConflictError: The name is taken.
        UnavailableError: It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_written = False
        try:
            self._descriptor = self._opened()
        except OSError as error:
            raise self._unavailable(error) from None

    def write(self, lines: Iterable[str]) -> None:
        """Write everything and have the disk take it. Raises UnavailableError."""
        try:
            with os.fdopen(os.dup(self._descriptor), "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
            os.fsync(self._descriptor)
            self._sync_folder()
            self._is_written = True
        except OSError as error:
            raise self._unavailable(error) from None

    def __enter__(self) -> SecretsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, BackendError) and self._is_written:  # the connection was lost at the commit, perhaps
            output.say(f"iothub: warning: {self._path} is kept: {_MAYBE}, and remove the file if they do not exist")
        elif error is not None and not (isinstance(error, PartlyDoneError) and self._is_written):
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)  # and with it the lock: nobody takes over a file that is about to go

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, _MODE)
        except FileExistsError:
            if self._path.is_symlink() or not self._path.is_file():
                raise self._taken() from None
            descriptor = os.open(self._path, flags)
        try:
            self._take(descriptor)
        except (OSError, IotHubError):
            os.close(descriptor)
            raise
        return descriptor

    def _take(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"{self._path}: another import is writing to it; name a new file") from None
        found = os.fstat(descriptor)
        if found.st_size or not found.st_nlink:
            raise self._taken()
        if stat.S_IMODE(found.st_mode) != _MODE:
            os.fchmod(descriptor, _MODE)

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _taken(self) -> ConflictError:
        return ConflictError(
            f"{self._path} exists already and may contain secrets: name a new file; if a killed import left it, "
            f"{_LOOK}, and remove the file if its devices do not exist"
        )

    def _unavailable(self, error: OSError) -> UnavailableError:
        return UnavailableError(f"{self._path}: cannot be written: {error.strerror}")


class SecretsOutput:
    """Standard output, which a person named as `-`: a pipe into a vault, or a terminal."""

    def __init__(self) -> None:
        self._is_written = False

    def write(self, lines: Iterable[str]) -> None:
        """Write everything. Raises OutputError, also when the reader of a pipe is gone: the secrets would be lost."""
        try:
            output.write_text("".join(f"{line}\n" for line in lines), end="")
        except BrokenPipeError:
            raise output.OutputError("standard output was closed: the secrets could not be written") from None
        self._is_written = True

    def __enter__(self) -> SecretsOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_written and isinstance(error, BackendError):
            output.say(f"iothub: warning: {_MAYBE}, and discard the secrets if they do not exist")
        elif self._is_written and error is not None and not isinstance(error, PartlyDoneError):
            output.say("iothub: warning: the import failed: the printed secrets are void")
