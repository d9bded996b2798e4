"""What stores report about themselves, as alarms: their words in, names of alarms out.

Knows no store's inside: a word says which store it is, and whether its file or a record is damaged or it fails; an empty text means that it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from iothub.config.datadir import DataDir
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.store_process.connection import AWAY

STORE_PROCESS = "store process"
"""The one subject of the alarms of all stores while their process is away."""

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
        self._waiting: set[str] = set()  # stores that have not heard from their process since it was away
        self.process_away = ""  # what the supervisor says of the store process; empty: it works

    def end(self) -> None:
        """The hub has closed its stores: raise no further alarm."""
        self._is_over = True

    def __call__(self, word: str, text: str) -> None:
        """`word`: `queues_failing`, `events_corrupt`, `queues.journal` (segments are damaged) and so on: the subject of the alarm."""
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
            self._corrupt(word, text)
            return
        if self._is_over:
            return
        store = word.removesuffix(_FAILING)
        if text and (self.process_away or text.startswith(AWAY)):
            self._is_away(store, text)
            return
        self._is_back(store)
        is_full = any(words in text.lower() for words in _DISK_FULL)
        self._alarms.set(AlarmName.DISK_FULL, is_full, subject=store, detail=text)
        self._alarms.set(AlarmName.STORE_FAILED, bool(text) and not is_full, subject=store, detail=text)

    def _corrupt(self, subject: str, text: str) -> None:
        """A store that finds more damage says all of it anew."""
        if text:
            self._alarms.raise_(AlarmName.STORE_CORRUPT, subject=subject, detail=text, is_newest=True)
        else:
            self._alarms.clear(AlarmName.STORE_CORRUPT, subject=subject)

    def store_process_changed(self, text: str) -> None:
        """The supervisor says why the store process does not work, nothing if it does."""
        self.process_away = text
        if self._is_over:
            return
        if text:
            self._is_away(STORE_PROCESS, text)
        else:
            self._is_back(STORE_PROCESS)

    def _is_away(self, store: str, text: str) -> None:
        self._waiting.add(store)
        self._alarms.raise_(
            AlarmName.STORE_FAILED, subject=STORE_PROCESS, detail=text, is_newest=store == STORE_PROCESS
        )

    def _is_back(self, store: str) -> None:
        self._waiting.discard(store)
        if not self._waiting:
            self._alarms.clear(AlarmName.STORE_FAILED, subject=STORE_PROCESS)


def report_lost(data_dir: DataDir, on_alarm: Callable[[str, str], None], unused: Collection[Path] = ()) -> None:
    """Say which stores have gone since a hub worked here, but for `unused` ones. Call it before they are opened, which makes new ones."""
    for path in data_dir.lost_stores():
        if path in unused:
            continue
        how = "is empty" if path.exists() else "is missing"
        what = f"{path.name} {how} although a hub has worked here: a new one was made, and what it held is lost"
        on_alarm(f"{path.stem}{_GONE}", what)
