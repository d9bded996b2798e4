"""What a worker has said of its counters: kept beside the others' until the machine's hub begins anew.

A scraper takes a sum that falls for a hub that began anew, and shows traffic that never was. So a worker that begins anew goes on from what its
predecessor has said last, and whoever asks takes, for a worker that does not answer, what that one has said last.

Invariant: what leaves a worker was saved before. It need not survive a power cut, which ends all workers: nothing is synced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from iothub.base import log as logging
from iothub_services.metrics.merging import Figure, Figures, Labels, counted, figures_in, merge, rows_of
from iothub_services.metrics.metrics import Metric

_MODE = 0o600

log = logging.get(__name__)


def exported_file(folder: Path, worker: int) -> Path:
    """Name the file of a worker."""
    return folder / f"figures-{worker}.json"


def forget_exported(folder: Path) -> None:
    """Let all counters begin at 0: before the first worker of a hub begins. A file that stays does no more than let one go on."""
    for path in folder.glob("figures-*.json"):
        with suppress(OSError):
            path.unlink()


def last_exported(path: Path) -> Mapping[Metric, Mapping[Labels, Figure]]:
    """Return what was saved; nothing if there is no such file, or one that cannot be read."""
    try:
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return figures_in(row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else {}


class Exported:
    """The counters of one worker as others may see them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = last_exported(path)
        self._is_failing = False

    def export(self, figures: Figures) -> Figures:
        """Return a worker's figures with those of its predecessors in the counters; they were saved, or the log says why not."""
        exported = merge((figures, self._before))
        temporary = self._path.with_suffix(".new")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(list(rows_of(counted(exported)))).encode())
            temporary.replace(self._path)
        except OSError as error:
            if not self._is_failing:
                log.warning("counters not saved; they may fall when this worker begins anew", cause=error.strerror)
            self._is_failing = True
        else:
            self._is_failing = False
        return exported
