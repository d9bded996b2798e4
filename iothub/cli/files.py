"""Files that a person names on the command line: read with a bound, written for the owner alone.

Knows no content beyond "this is JSON". `-` is standard input or output where a command says so, and a file nowhere; `./-` is one.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from iothub.base.errors import ConfigError, ConflictError, IotHubError, UnavailableError

JSON_LIMIT_BYTES = 256 << 20
DASH = Path("-")


class NamedPath(click.Path):
    """A path as it was given. What is wrong with it is said in our words where it is used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, readable=False, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse names that mean something else than they seem to.

        The empty one: a variable that is not set must not mean the working directory. `-` where it is neither input nor output.
        """
        if value == "":
            self.fail("the name is empty; is a variable not set?", param, ctx)
        if value == "-" and not self.allow_dash:
            self.fail("- stands for no file here; a file of that name is ./-", param, ctx)
        path = super().convert(value, param, ctx)
        return Path.cwd() / path if value != "-" and path == DASH else path


def cannot_be_read(path: object, error: OSError) -> IotHubError:
    """Explain a file that a person named: one that is not there is a slip of the keyboard, any other cause may pass."""
    kind = ConfigError if isinstance(error, FileNotFoundError | IsADirectoryError) else UnavailableError
    return kind(f"{path}: cannot be read: {error.strerror}")


def read_json(path: Path) -> object:
    """Return what a JSON file holds; `-`: standard input. Raises ConfigError, UnavailableError."""
    try:
        with click.open_file(str(path), "rb") as file:
            octets = file.read(JSON_LIMIT_BYTES + 1)
    except OSError as error:
        raise cannot_be_read(path, error) from None
    if len(octets) > JSON_LIMIT_BYTES:
        raise ConfigError(f"{path}: longer than {JSON_LIMIT_BYTES >> 20} MiB, which no export is")
    try:
        return json.loads(octets)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected JSON: {error}") from None


def require_free(path: Path, *, is_forced: bool) -> None:
    """Raise ConflictError when a file would be overwritten that nobody gave up, and for what is no file at all."""
    if path.exists() and not path.is_file():
        raise ConflictError(f"{path} is there and is no file: name a new file, or - for standard output")
    if os.path.lexists(path) and not is_forced:
        raise ConflictError(f"{path} exists already: name a new file, or overwrite it with --force")


def write_secret_file(path: Path, text: str) -> None:
    """Write a file that only its owner can read; one that is there is replaced. Raises UnavailableError."""
    try:
        descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(fresh, path)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
