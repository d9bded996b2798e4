"""What stores report about themselves, as alarms: their words in, names of alarms out.

Knows no store's inside: a word says which store it is, and whether its file or a record is damaged or it fails; an empty text means that it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from iothub.config.datadir import DataDir
from iothub_services.metrics.alarms import AlarmName, Alarms

_FAILING = "_failing"
_GONE = "_gone"
_DAMAGED = "_damaged"
_UNUSED = "checkpoint_unused"  # no store is damaged: a checkpoint can be made again
_DISK_FULL = ("disk is full", "no space left", "disk quota exceeded")  # of SQLite and of the system


class StoreAlarms:
    """Raises and clears the alarms of the stores. On the reactor thread, or before the reactor runs."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._is_over = False

    def end(self) -> None:
        """The hub has closed its stores: raise no further alarm."""
        self._is_over = True

    def __call__(self, word: str, text: str) -> None:
        """`word`: `queues_failing`, `events_corrupt` and so on: the subject of the alarm."""
        if word.endswith(_GONE):
            self._alarms.set(AlarmName.STORE_LOST, bool(text), subject=word.removesuffix(_GONE), detail=text)
            return
        if word == _UNUSED:
            self._alarms.set(AlarmName.CHECKPOINT_UNUSED, bool(text), detail=text)
            return
        if word.endswith(_DAMAGED):
            self._alarms.set(AlarmName.RECORD_DAMAGED, bool(text), subject=word.removesuffix(_DAMAGED), detail=text)
            return
        if not word.endswith(_FAILING):
            self._alarms.set(AlarmName.STORE_CORRUPT, bool(text), subject=word, detail=text)
            return
        if self._is_over:
            return
        store = word.removesuffix(_FAILING)
        is_full = any(words in text.lower() for words in _DISK_FULL)
        self._alarms.set(AlarmName.DISK_FULL, is_full, subject=store, detail=text)
        self._alarms.set(AlarmName.STORE_FAILED, bool(text) and not is_full, subject=store, detail=text)


def report_lost(data_dir: DataDir, on_alarm: Callable[[str, str], None], unused: Collection[Path] = ()) -> None:
    """Say which stores have gone since a hub worked here, but for `unused` ones. Call it before they are opened, which makes new ones."""
    for path in data_dir.lost_stores():
        if path in unused:
            continue
        how = "is empty" if path.exists() else "is missing"
        what = f"{path.name} {how} although a hub has worked here: a new one was made, and what it held is lost"
        on_alarm(f"{path.stem}{_GONE}", what)
