"""A new file for secrets that nobody can tell again: written whole before they count, gone when what they are for fails for certain.

Knows no device.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeAlias

from iothub.cli import output
from iothub.errors import BackendError, ConflictError, UnavailableError

_MODE = 0o600

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class SecretsFile:
    """Takes its name at once, for its owner alone; a file that is there is never touched.

    Raises:
        ConflictError: The name is taken.
        UnavailableError: It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: _Handler = None
        self._is_written = False
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        except FileExistsError:
            raise ConflictError(f"{path} exists already and may hold secrets: name a new file") from None
        except OSError as error:
            raise self._unavailable(error) from None

    def write(self, lines: Iterable[str]) -> None:
        """Write everything and have the disk take it. Raises UnavailableError.

        From here on Ctrl-C is ignored: the rest takes seconds, and an interrupted commit may have happened or not.
        """
        self._before = signal.signal(signal.SIGINT, signal.SIG_IGN)
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
        os.close(self._descriptor)
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if isinstance(error, BackendError) and self._is_written:  # the connection was lost at the commit, perhaps
            output.say(
                f"iothub: warning: {self._path} is kept: the database may have taken the devices before it failed; "
                "look with `iothub device list`, and remove the file if they are not there"
            )
        elif error is not None:
            self._path.unlink(missing_ok=True)

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unavailable(self, error: OSError) -> UnavailableError:
        return UnavailableError(f"{self._path}: cannot be written: {error.strerror}")
