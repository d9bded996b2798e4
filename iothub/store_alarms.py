"""What stores tell about themselves, as alarms: their words in, names of alarms out.

Knows no store's inside: a word says whose file or thread it is and whether that is damaged or failing; an empty text means that it is over.
"""

from __future__ import annotations

from iothub_services.metrics.alarms import AlarmName, Alarms

_FAILING = "_failing"
_DISK_FULL = ("disk is full", "no space left", "disk quota exceeded")  # of SQLite and of the system


class StoreAlarms:
    """Raises and clears the alarms of the stores. On the reactor thread, or before the reactor runs."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms

    def __call__(self, word: str, text: str) -> None:
        """`word`: `queues_failing`, `events_corrupt` and so on: the subject of the alarm."""
        if not word.endswith(_FAILING):
            self._alarms.set(AlarmName.STORE_CORRUPT, bool(text), subject=word, detail=text)
            return
        store = word.removesuffix(_FAILING)
        is_full = any(words in text.lower() for words in _DISK_FULL)
        self._alarms.set(AlarmName.DISK_FULL, is_full, subject=store, detail=text)
        self._alarms.set(AlarmName.STORE_FAILED, bool(text) and not is_full, subject=store, detail=text)
