"""What a backup says of itself: `backup.json`, written last. A folder without it is no backup.

Knows names, sizes and hashes of files, and not what is in them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from iothub.backup.files import MANIFEST
from iothub.base.errors import ConflictError, CorruptRecordError, NotFoundError, UnavailableError
from iothub.config.datadir import write_atomically

VERSION = 1
_LIMIT_BYTES = 256 << 20  # a million files of the archive
_SHOWN = 60  # letters of what is wrong
_I64 = 1 << 63
_T = TypeVar("_T")
_KINDS: dict[type, str] = {int: "a number", str: "a text", bool: "true or false", list: "a list"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. `name`: its path in the data directory; `schema`: of a SQLite file of the hub, 0 of others; `modified_ns`: Unix time."""

    name: str
    size_bytes: int
    sha256: str
    mode: int
    modified_ns: int
    schema: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole backup. `cut_at`: the moment of which it is, ISO 8601; `elsewhere`: what the hub needs besides, in words."""

    program: str
    cut_at: str
    data_dir: str
    is_hub_running: bool
    files: tuple[Entry, ...]
    elsewhere: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.files)


def write(folder: Path, manifest: Manifest) -> None:
    """Write it, synced; whoever finds it finds the whole backup. Raises OSError."""
    write_atomically(
        folder / MANIFEST, (json.dumps({"version": VERSION, **asdict(manifest)}, indent=2) + "\n").encode()
    )


def read(folder: Path) -> Manifest:
    """Read it.

    Raises:
        NotFoundError: the folder is no backup, or one that was not finished.
        ConflictError: it is of a newer program.
        CorruptRecordError: it is damaged.
        UnavailableError: it cannot be read.
    """
    file = folder / MANIFEST
    try:
        with file.open("rb") as source:
            text = source.read(_LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"{folder} is no backup, or one that was not finished: it has no {MANIFEST}; name a folder that `iothub backup` made"
        ) from None
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be read: {error.strerror}") from None
    try:
        manifest = _from_json(_parsed(text))
        _require_whole(manifest, folder)
        return manifest
    except ValueError as error:
        raise CorruptRecordError(f"{file} is damaged: {error}; use another backup") from None


def _parsed(text: bytes) -> object:
    """Raises ValueError, with a text for people."""
    if not text.strip():
        raise ValueError("it is empty")
    try:
        return json.loads(text)
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def _from_json(content: object) -> Manifest:
    """Raises ConflictError; ValueError, with a text for people: not of our form."""
    version = _field(content, "version", int)
    if version > VERSION:
        raise ConflictError(
            f"{MANIFEST} has version {version}, this program knows up to {VERSION}: use the newer program"
        )
    return Manifest(
        program=_field(content, "program", str),
        cut_at=_field(content, "cut_at", str),
        data_dir=_field(content, "data_dir", str),
        is_hub_running=_field(content, "is_hub_running", bool),
        files=tuple(map(_entry, _field(content, "files", list))),
        elsewhere=tuple(map(str, _field(content, "elsewhere", list))),
    )


def _require_whole(manifest: Manifest, folder: Path) -> None:
    """Raises ValueError: files are named twice, or none is, or a database that is there is not."""
    names = [entry.name for entry in manifest.files]
    if not names:
        raise ValueError("it names no file")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"it names {twice!r} twice")
    unnamed = sorted({file.name for file in folder.glob("*.db")}.difference(names))
    if unnamed:
        raise ValueError(f"it does not name {unnamed[0]}, which is there")


def _number(content: object, name: str, below: int) -> int:
    value = _field(content, name, int)
    if not 0 <= value < below:
        raise ValueError(f"{name!r} is {str(value)[:_SHOWN]}, expected a number from 0 to {below - 1}")
    return value


def _field(content: object, name: str, kind: type[_T]) -> _T:
    if not isinstance(content, dict):
        raise ValueError(f"expected an object with {name!r}, got {json.dumps(content)[:_SHOWN]}")
    if name not in content:
        raise ValueError(f"{name!r} is missing")
    value = content[name]
    if type(value) is not kind:
        raise ValueError(f"{name!r} is not {_KINDS[kind]}: {json.dumps(value)[:_SHOWN]}")
    return value


def _entry(content: object) -> Entry:
    name = _field(content, "name", str)
    if name.startswith("/") or ".." in Path(name).parts or not Path(name).parts:
        raise ValueError(f"file name {name!r} leads out of the data directory")
    return Entry(
        name,
        _number(content, "size_bytes", _I64),
        _field(content, "sha256", str),
        _number(content, "mode", 0o1000),
        _number(content, "modified_ns", _I64),
        _number(content, "schema", _I64),
    )
