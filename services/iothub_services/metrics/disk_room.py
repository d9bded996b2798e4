"""A part of the disk is for those who make room there: while no more is free, publishers of durable messages wait.

Knows no queue and no connection.

Theory: acknowledgements, a purge, the session of a reader who comes back and a start write before anything is removed. So does what was accepted
already: the journal of the queues is copied into their tables, by way of a log of SQLite's. What is empty in the tables' file is used again before
the file grows, so it is room for messages; for segments and logs it is none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from iothub.base.units import format_size_roughly
from iothub_services.metrics import probes
from iothub_services.metrics.alarms import AlarmName, Alarms

LOOK_INTERVAL_S = 0.2  # publishers fill much in a second
MOST_RESERVED_BYTES = 256 << 20
_RESERVED_SHARE = 3  # of the disk, where that is less
_LOG_SHARE = 4  # of what is reserved, for segments and logs
_LEAST_LOG_BYTES = 4 << 20
_RELIEF = 0.9


class DiskRoom:
    """Looks at the disk of one folder. On the reactor thread."""

    def __init__(
        self,
        folder: Path,
        hold: Callable[[bool], None],
        reusable_bytes: Callable[[], int],
        alarms: Alarms,
        free_and_size: Callable[[Path], tuple[int, int]] = probes.disk_free_and_size,
    ) -> None:
        """`hold`: hears at each look whether publishers wait. `reusable_bytes`: of the tables' file, what nothing is in."""
        self._folder = folder
        self._hold = hold
        self._reusable_bytes = reusable_bytes
        self._alarms = alarms
        self._free_and_size = free_and_size
        self._is_short = False

    async def look(self) -> None:
        """One system call; a task that is done again and again. A folder that is gone changes nothing: whoever writes there says so."""
        with suppress(OSError):
            free, size = self._free_and_size(self._folder)
            reserved = min(MOST_RESERVED_BYTES, size // _RESERVED_SHARE)
            relief = _RELIEF if self._is_short else 1.0
            has_room = (free + self._reusable_bytes()) * relief >= reserved
            self._is_short = not has_room or free * relief < max(reserved // _LOG_SHARE, _LEAST_LOG_BYTES)
            if self._is_short:
                detail = f"{format_size_roughly(free)} free, {format_size_roughly(reserved)} are reserved for consumers"
                self._alarms.raise_(AlarmName.DISK_SHORT, detail=detail)
            else:
                self._alarms.clear(AlarmName.DISK_SHORT)
            self._hold(self._is_short)
