"""What is said about damaged segments: one alarm, whose text names all of them and where they are kept.

Knows no record and no queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from iothub.base import log as logging
from iothub.base.errors import BackendError
from iothub_services.queues.journal.segments import MISSING

SUBJECT = "queues.journal"
"""Of the alarm `store_corrupt`: the name of the folder."""

_MOST_NAMED = 10

log = logging.get(__name__)


class DamageReport:
    """The damaged segments of one journal since the process started."""

    def __init__(self, folder: Path, keep: Callable[[int], str], on_alarm: Callable[[str, str], None]) -> None:
        """`keep`: keeps a file and returns its name; raises BackendError. `on_alarm`: gets the whole text anew whenever there is more to say."""
        self._folder = folder
        self._keep = keep
        self._on_alarm = on_alarm
        self._found: dict[int, str] = {}
        self._kept: list[str] = []
        self._not_kept: list[str] = []

    def report(self, found: Mapping[int, str]) -> None:
        """Say what is wrong with segments, by their numbers; what was said before is not said again."""
        new = {segment: damage for segment, damage in found.items() if segment not in self._found}
        for segment, damage in new.items():
            self._found[segment] = damage
            log.error(
                "a segment of the queues' journal is damaged", folder=str(self._folder), segment=segment, damage=damage
            )
            if damage != MISSING:
                self._put_aside(segment)
        if new:
            self._on_alarm(SUBJECT, self._text())

    def _put_aside(self, segment: int) -> None:
        try:
            self._kept.append(self._keep(segment))
        except BackendError as error:
            self._not_kept.append(f"segment {segment} could not be kept: {error}")

    def _text(self) -> str:
        named = [f"segment {segment} {damage}" for segment, damage in sorted(self._found.items())]
        more = len(named) - _MOST_NAMED
        what = ", ".join(named[:_MOST_NAMED]) + (f", and {more} more (see the log)" if more > 0 else "")
        text = f"{self._folder}: {what}; every whole record was used, what else they had is lost"
        if self._kept:
            kept = (
                self._kept[0] if len(self._kept) == 1 else f"{self._kept[0]} and {len(self._kept) - 1} more *.damaged"
            )
            text += f"; kept there as {kept}"
        return "; ".join([text, *self._not_kept[:1]])
