"""The files of traces: one for each, with a line of JSON for each event, mode 0600, and never larger than its limit.

Knows no connection. Blocks: its calls run in a thread.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from iothub.base.errors import NotFoundError, UnavailableError

ID = re.compile(r"t-[0-9a-f]{16}")
MOST_KEPT = 20  # files of one hub, running traces included: with the limit of each they bound the folder
KEPT_S = 24 * 3600  # after the end of a trace
_READ_BYTES = 256 << 10


class Line(NamedTuple):
    """One line, and where the next one begins."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class KeptTrace:
    """What a file says of its trace. `facts`: its first line; `last`: its last one, of a trace that has ended."""

    facts: dict[str, Any]
    last: dict[str, Any]
    size: int

    @property
    def until_ms(self) -> int:
        """When the file of a trace that has ended goes: counted from its last line, or from its first if that one was not written whole."""
        at_ms = self.last.get("at_ms", self.facts.get("at_ms"))
        return (at_ms if isinstance(at_ms, int) else 0) + KEPT_S * 1000


class TraceFiles:
    """The folder `traces` of a hub's own part of the data directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, trace_id: str, first: bytes) -> None:
        """Raises UnavailableError."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._path(trace_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(first)
        except OSError as error:
            raise UnavailableError(f"cannot write {self._folder}: {error.strerror}") from None

    def append(self, trace_id: str, lines: bytes) -> None:
        """Raises OSError."""
        descriptor = os.open(self._path(trace_id), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(lines)

    def kept(self) -> list[str]:
        """Return the ids of all files, oldest first."""
        try:
            found = [each for each in self._folder.iterdir() if ID.fullmatch(each.stem) and each.suffix == ".jsonl"]
            return [each.stem for each in sorted(found, key=lambda each: (each.stat().st_mtime, each.stem))]
        except OSError:
            return []

    def kept_of(self, tenant_id: int) -> list[str]:
        """Return the ids of a tenant's files. By its number: another tenant may get the name of a deleted one."""
        found = []
        for trace_id in self.kept():
            with suppress(NotFoundError):  # deleted meanwhile
                if self.describe(trace_id).facts.get("tenant_id") == tenant_id:
                    found.append(trace_id)
        return found

    def expire(self, running: Collection[str], now_ms: int) -> None:
        """Delete the files whose time is over; those of running traces stay."""
        for trace_id in self.kept():
            with suppress(NotFoundError):  # deleted meanwhile
                if trace_id not in running and self.describe(trace_id).until_ms <= now_ms:
                    self.delete(trace_id)

    def make_room(self, tenant_id: int, most: int, running: Collection[str]) -> None:
        """Delete a tenant's oldest traces that have ended, until it has fewer than `most`."""
        own = self.kept_of(tenant_id)
        ended = [trace_id for trace_id in own if trace_id not in running]
        for trace_id in ended[: max(len(own) - most + 1, 0)]:
            with suppress(NotFoundError):
                self.delete(trace_id)

    def forget(self, tenant_id: int) -> None:
        """Delete the files of a tenant that is being deleted."""
        for trace_id in self.kept_of(tenant_id):
            with suppress(NotFoundError):
                self.delete(trace_id)

    def describe(self, trace_id: str) -> KeptTrace:
        """Raises NotFoundError."""
        try:
            with self._path(trace_id).open("rb") as file:
                first = file.readline(_READ_BYTES)
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - 4096, 0))
                last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
        except OSError:
            raise _no_trace(trace_id) from None
        return KeptTrace(_json(first), _json(last), size)

    def read(self, trace_id: str, offset: int, lines: int) -> list[Line]:
        """Return the whole lines from an offset on, at most so many. Raises NotFoundError."""
        found: list[Line] = []
        try:
            with self._path(trace_id).open("rb") as file:
                file.seek(offset)
                data = file.read(_READ_BYTES)
        except OSError:
            raise _no_trace(trace_id) from None
        for line in data.splitlines(keepends=True)[:lines]:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            found.append(Line(offset, line.decode(errors="replace").rstrip("\n")))
        return found

    def delete(self, trace_id: str) -> None:
        """Raises NotFoundError."""
        try:
            self._path(trace_id).unlink()
        except OSError:
            raise _no_trace(trace_id) from None

    def _path(self, trace_id: str) -> Path:
        if not ID.fullmatch(trace_id):
            raise _no_trace(trace_id)
        return self._folder / f"{trace_id}.jsonl"


def _no_trace(trace_id: str) -> NotFoundError:
    return NotFoundError(f"there is no trace {trace_id!r}; `iothub trace list TENANT` shows them")


def _json(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
