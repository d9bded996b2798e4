"""The archive: events as Parquet files, in folders by log, batch, tenant and day. A folder that every worker of a cluster can reach.

Knows folders and marks, no event and no Spark.

Theory: `events/log=LOG/batch=ID/tenant_id=N/day=YYYY-MM-DD/*.parquet`. A batch is what one run has copied; its ID says from where on (the mark
of the run before, which moves only after the batch is whole). A run that is repeated therefore writes the same batch anew, and never a second one.
A batch without `_SUCCESS` is not whole: nobody reads it. `events/log=LOG/gap.json` says before which moment events were gone when a copy began.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from iothub.base.errors import BackendError, ConfigError, CorruptRecordError
from iothub.records.causes import UNREADABLE, in_words
from iothub.records.events import Topic
from iothub_spark.stores.accounts import Mark

ARCHIVE = "archive"
"""The job by whose marks it is known how far the copies are."""

LOGS = {Topic.SESSIONS: "sessions", Topic.ANALYTICS: "analytics"}
"""The words of marks and folders."""

_WHOLE = "_SUCCESS"
_GAP = "gap.json"


def required(path: Path | None) -> Path:
    """Return the archive's folder. Raises ConfigError: the spec names none."""
    if path is None:
        raise ConfigError("archive is missing: expected the folder of the archive")
    return path


def events_folder(archive: Path) -> Path:
    return archive / "events"


def batch_folder(archive: Path, log: str, mark: Mark) -> Path:
    """Return where the batch that begins behind a mark is."""
    place = blake2b(repr(tuple(mark.offsets)).encode(), digest_size=6).hexdigest()
    return events_folder(archive) / f"log={log}" / f"batch={mark.at_ms:013d}-{place}"


def whole_batches(archive: Path, log: str) -> list[Path]:
    """Return the batches that can be read, in the order in which they were begun."""
    return sorted(mark.parent for mark in (events_folder(archive) / f"log={log}").glob(f"batch=*/{_WHOLE}"))


def note_gap(archive: Path, log: str, before_ms: int) -> None:
    """Remember before which moment events were gone that nobody had copied. Raises BackendError."""
    file, latest = _gap_file(archive, log), last_gap_ms(archive, log) or 0
    write_text(file, json.dumps({"v": 1, "before_ms": max(latest, before_ms)}) + "\n")


def last_gap_ms(archive: Path, log: str) -> int | None:
    """Return the last moment before which the archive lacks events; None: it lacks none. Raises CorruptRecordError."""
    file = _gap_file(archive, log)
    try:
        fields = json.loads(file.read_bytes())
        return int(fields["before_ms"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BackendError(f"{file}: cannot be read: {error.strerror}", retryable=True) from error
    except UNREADABLE as error:
        raise CorruptRecordError(
            f"{file}: damaged ({in_words(error)}): remove it; reports then no longer show what the archive lacks"
        ) from error


def _gap_file(archive: Path, log: str) -> Path:
    return events_folder(archive) / f"log={log}" / _GAP


def write_text(file: Path, text: str) -> None:
    """Write a file whole or not at all. Raises BackendError."""
    fresh = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, file)
    except OSError as error:
        raise BackendError(f"{file}: cannot be written: {error.strerror}", retryable=True) from error


def folders_of(archive: Path, tenant_id: int) -> list[Path]:
    """Return every folder that holds rows of a tenant: its events in each batch, its usage, and what a killed run has left of both."""
    name = f"tenant_id={tenant_id}"
    return sorted([*events_folder(archive).rglob(name), *(archive / "usage").rglob(name)])


def reports_with(archive: Path, tenant_id: int) -> list[Path]:
    """Return the pages that speak of a tenant, unfinished ones too."""
    mark = f'data-tenant="{tenant_id}"'.encode()
    return sorted(page for page in archive.glob("reports/*") if page.is_file() and mark in page.read_bytes())


def remove(folder: Path) -> int:
    """Remove a folder; returns how many data files it had. Raises BackendError."""
    count = sum(1 for _ in _data_files(folder))
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise BackendError(f"{folder}: cannot be removed: {error.strerror}", retryable=True) from error
    return count


def _data_files(folder: Path) -> Iterator[Path]:
    return folder.rglob("*.parquet")
