"""What a backup says of itself: `backup.json`, written last. A folder without it is no backup.

Knows names, sizes and hashes of files, and not what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from iothub.backup.files import MANIFEST
from iothub.base.errors import ConflictError, CorruptRecordError, NotFoundError, UnavailableError
from iothub.config.datadir import write_atomically

VERSION = 1
_LIMIT_BYTES = 256 << 20  # a million files of the archive


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
        return _from_json(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError(f"{file} is damaged: {error!r}; use another backup") from None


def _from_json(content: Mapping[str, object]) -> Manifest:
    """Raises ConflictError; KeyError, TypeError, ValueError: not of our form."""
    version = content["version"]
    if not isinstance(version, int) or version > VERSION:
        raise ConflictError(
            f"{MANIFEST} has version {version}, this program knows up to {VERSION}: use the newer program"
        )
    entries = tuple(_entry(each) for each in cast("Sequence[Mapping[str, object]]", content["files"]))
    return Manifest(
        program=str(content["program"]),
        cut_at=str(content["cut_at"]),
        data_dir=str(content["data_dir"]),
        is_hub_running=bool(content["is_hub_running"]),
        files=entries,
        elsewhere=tuple(map(str, cast("Sequence[object]", content["elsewhere"]))),
    )


def _entry(content: Mapping[str, object]) -> Entry:
    name = str(content["name"])
    if name.startswith("/") or ".." in Path(name).parts or not Path(name).parts:
        raise ValueError(f"file name {name!r} leads out of the data directory")
    numbers = [content[word] for word in ("size_bytes", "mode", "modified_ns", "schema")]
    size_bytes, mode, modified_ns, schema = (int(str(number)) for number in numbers)
    return Entry(name, size_bytes, str(content["sha256"]), mode & 0o777, modified_ns, schema)
