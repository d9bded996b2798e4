"""Files named on the command line: read up to a limit, written readable by their owner only.

`-` is standard input or output where a command says so, never a file; `./-` is a file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from iothub.base import documents
from iothub.base.errors import ConfigError, ConflictError, IotHubError, UnavailableError

JSON_LIMIT_BYTES = 256 << 20
DASH = Path("-")


class NamedPath(click.Path):
    """A path as it was given; the command that uses it reports what is wrong with it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, readable=False, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse misleading names: the empty one (an unset variable must not mean the working directory), and `-` where it is no file."""
        if value == "":
            self.fail("the name is empty: is a shell variable unset?", param, ctx)
        if value == "-" and not self.allow_dash:
            self.fail("- is not a file here: for a file of that name write ./-", param, ctx)
        path = super().convert(value, param, ctx)
        return Path.cwd() / path if value != "-" and path == DASH else path


def cannot_be_read(path: object, error: OSError) -> IotHubError:
    """Return the error for a file that cannot be read: a missing one is a wrong command line, other causes may pass."""
    kind = ConfigError if isinstance(error, FileNotFoundError | IsADirectoryError) else UnavailableError
    return kind(f"{path}: cannot be read: {error.strerror}")


@contextmanager
def opened_lines(path: Path) -> Iterator[Iterable[str]]:
    """Give the lines of a text; `-`: standard input. Octets that are no UTF-8 are surrogates: whoever reads the lines names theirs.

    Raises:
        ConfigError, UnavailableError: it cannot be read.
    """
    try:
        with click.open_file(str(path), encoding="utf-8", errors="surrogateescape") as lines:
            yield lines
    except OSError as error:
        raise cannot_be_read(path, error) from None


def read_json(path: Path) -> object:
    """Return what a JSON file holds; `-`: standard input. Raises ConfigError, UnavailableError."""
    octets = read_text(path)
    try:
        return documents.read_json(octets)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_text(path: Path) -> bytes:
    """Return what a file holds that somebody gives us whole; `-`: standard input. Raises ConfigError, UnavailableError."""
    try:
        with click.open_file(str(path), "rb") as file:
            octets: bytes = file.read(JSON_LIMIT_BYTES + 1)
    except OSError as error:
        raise cannot_be_read(path, error) from None
    if len(octets) > JSON_LIMIT_BYTES:
        raise ConfigError(f"{path}: longer than {JSON_LIMIT_BYTES >> 20} MiB: not an export")
    return octets


def require_free(path: Path, *, is_forced: bool) -> None:
    """Raise ConflictError when `path` exists and --force was not given, or is not a file."""
    if path.exists() and not path.is_file():
        raise ConflictError(f"{path} exists and is not a file: name a new file, or - for standard output")
    if os.path.lexists(path) and not is_forced:
        raise ConflictError(f"{path} exists already: name a new file, or use --force to overwrite it")


def write_new_file(path: Path, content: bytes, mode: int, *, is_forced: bool) -> None:
    """Write a file with this mode from its first byte on. Raises ConflictError: it exists, and --force was not given; OSError."""
    if is_forced:
        path.unlink(missing_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise ConflictError(f"{path} exists already: use --force to replace it") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def write_secret_file(path: Path, text: str) -> None:
    """Write a file that only its owner can read, replacing an existing one. Raises UnavailableError."""
    try:
        descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(fresh, path)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
