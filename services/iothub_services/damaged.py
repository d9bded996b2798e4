"""Damaged records of the stores: each is counted and logged, the first of a store raises an alarm, and everybody goes on without them.

Knows no store and no format: who reads a record that is damaged says in which store it is, under which key, and what is wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from iothub.base import log as logging

log = logging.get(__name__)


class OnDamage(Protocol):
    """Gets each damaged record, in any thread."""

    def __call__(self, store: str, key: str, reason: str, /, *, is_rebuilt: bool = False) -> None:
        """`key`: which record, with tenant and client where it has them. `is_rebuilt`: its content was found elsewhere, so nothing is lost."""


_REMEMBERED = 10_000  # records of a store


def uncounted(_store: str, _key: str, _reason: str, /, *, is_rebuilt: bool = False) -> None:
    """Pass over: nobody counts."""
    del is_rebuilt


class DamagedRecords:
    """The count of one hub. May be called in any thread; `on_alarm` is called there.

    Invariants: a record that is read several times counts once, as long as no more than `_REMEMBERED` of its store are damaged. A store's alarm
    is raised once and names the first record that is lost; it ends with the process, as the count does.
    """

    def __init__(self, on_alarm: Callable[[str, str], None]) -> None:
        self._on_alarm = on_alarm
        self._lock = threading.Lock()
        self._known: dict[str, set[str]] = {}
        self._counts: dict[str, int] = {}
        self._alarmed: set[str] = set()

    def __call__(self, store: str, key: str, reason: str, /, *, is_rebuilt: bool = False) -> None:
        with self._lock:
            known = self._known.setdefault(store, set())
            if key in known:
                return
            if len(known) < _REMEMBERED:
                known.add(key)
            self._counts[store] = self._counts.get(store, 0) + 1
            is_first = not is_rebuilt and store not in self._alarmed
            if is_first:
                self._alarmed.add(store)
        what = "damaged record rebuilt from the log" if is_rebuilt else "damaged record skipped"
        log.warning(what, store=store, key=key, reason=reason)
        if is_first:
            self._on_alarm(f"{store}_damaged", f"{key}: {reason}")

    def counts(self) -> dict[str, int]:
        """Return how many there are in each store that has any, for the metric."""
        with self._lock:
            return dict(self._counts)
