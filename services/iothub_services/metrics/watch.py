"""Looks at the machine every few seconds and raises or clears its alarms: disk, memory, certificates, late ticks.

Knows levels and probes, and does not act on them: the listeners refuse connections while `is_overloaded`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from iothub.base.clock import Clock
from iothub.base.errors import ConfigError
from iothub.base.units import format_size, format_size_roughly
from iothub.config.sections import AlarmLevels
from iothub_services.metrics import probes
from iothub_services.metrics.alarms import AlarmName, Alarms

CERTIFICATE_INTERVAL_S = 3600.0
CALM_S = 30.0  # so long no tick must have been late for its alarm to end
LATE_TICKS = 3  # within `LATE_WINDOW_S`: one alone is a pause that no client notices
LATE_WINDOW_S = 10.0
VERY_LATE_S = 3.0  # clients notice a single pause of this length
_DISK = "data_dir"  # subject of the alarms about the disk itself; the stores have their own
_RELIEF = 0.9  # an alarm about a level ends below 90 % of it, so that it does not flicker


@dataclass(frozen=True, slots=True)
class Probes:
    """Where the figures come from; tests put others here."""

    resident_bytes: Callable[[], int] = probes.resident_bytes
    disk_free_bytes: Callable[[Path], int] = probes.disk_free_bytes
    certificate_end: Callable[[Path], float] = probes.certificate_end
    is_read_only: Callable[[Path], bool] = probes.is_read_only


class Watch:
    """The figures of the last look, for the metrics, and the alarms that follow from them.

    `is_overloaded`: resident memory is above the limit, new connections are to be refused. `no_writes`: why nothing durable can be
    written, as far as that is known without an attempt; "" if it can.
    """

    def __init__(
        self,
        alarms: Alarms,
        levels: AlarmLevels,
        memory_limit: int,
        data_dir: Path,
        certificates: Mapping[str, Path],
        clock: Clock,
        probe: Probes | None = None,
    ) -> None:
        self.disk_free_bytes = 0
        self.resident_bytes = 0
        self.lag_s = 0.0
        self.certificate_ends: dict[str, float] = {}  # by listener, Unix seconds
        self.is_overloaded = False
        self.no_writes = ""
        self._alarms = alarms
        self._levels = levels
        self._memory_limit = memory_limit
        self._data_dir = data_dir
        self._certificates = certificates
        self._clock = clock
        self._probe = probe or Probes()
        self._certificates_at = 0.0
        self._late_at: deque[float] = deque(maxlen=LATE_TICKS)  # when the last ticks were late

    def apply(self, levels: AlarmLevels, memory_limit: int, certificates: Mapping[str, Path]) -> None:
        """Judge by other levels from now on, and measure at once; the certificates may be other files."""
        self._levels = levels
        self._memory_limit = memory_limit
        self._certificates = certificates
        self._certificates_at = 0.0
        self.sample()

    def sample(self) -> None:
        """Measure everything; a few system calls, certificates once an hour."""
        self._look_at_disk()
        self._look_at_memory()
        if not self._certificates_at or self._clock.monotonic() >= self._certificates_at:
            self.look_at_certificates()

    def require_room(self) -> None:
        """Raise ConfigError when this process is above the limit without any client: every connection would be refused."""
        resident = self._probe.resident_bytes()
        if resident >= self._memory_limit:
            raise ConfigError(
                f"overload.memory_limit: {format_size(self._memory_limit)}, but the hub uses {-(-resident >> 20)}MiB before the "
                "first client, so nobody could connect: set it well above that"
            )

    def ticked(self, late_s: float) -> None:
        """Note how late a clock tick of the reactor was: several in a row, or one by seconds, are an alarm."""
        self.lag_s = max(0.0, late_s)
        now, late = self._clock.monotonic(), self._late_at
        if late_s < self._levels.reactor_lag_s:
            if not late or now >= late[-1] + CALM_S:
                self._alarms.clear(AlarmName.REACTOR_LAG)
            return
        late.append(now)
        if late_s >= VERY_LATE_S:
            self._alarms.raise_(AlarmName.REACTOR_LAG, detail=f"a tick was {late_s * 1000:.0f} ms late")
        elif len(late) == LATE_TICKS and late[0] > now - LATE_WINDOW_S:
            detail = (
                f"{LATE_TICKS} ticks were late within {LATE_WINDOW_S:.0f} s, the last one by {late_s * 1000:.0f} ms"
            )
            self._alarms.raise_(AlarmName.REACTOR_LAG, detail=detail)

    def _look_at_disk(self) -> None:
        try:
            self.disk_free_bytes = self._probe.disk_free_bytes(self._data_dir)
            is_read_only = self._probe.is_read_only(self._data_dir)
        except OSError as error:
            self.no_writes = f"the data directory {self._data_dir} cannot be used: {error.strerror}"
            self._alarms.raise_(AlarmName.DISK_LOW, detail=f"{self._data_dir}: {error.strerror}")
            return
        is_full = self.disk_free_bytes < probes.ROOM_BYTES
        self.no_writes = "the disk is full" if is_full else ""
        if is_read_only:
            self.no_writes = "the file system of the data directory is read-only"
        self._alarms.set(
            AlarmName.DISK_FULL, is_full, subject=_DISK, detail=f"{format_size_roughly(self.disk_free_bytes)} free"
        )
        self._alarms.set(AlarmName.STORE_FAILED, is_read_only, subject=_DISK, detail=self.no_writes)
        if self.disk_free_bytes < self._levels.disk_free:
            self._alarms.raise_(AlarmName.DISK_LOW, detail=f"{format_size_roughly(self.disk_free_bytes)} free")
        elif self.disk_free_bytes * _RELIEF >= self._levels.disk_free:
            self._alarms.clear(AlarmName.DISK_LOW)

    def _look_at_memory(self) -> None:
        self.resident_bytes = self._probe.resident_bytes()
        used = self.resident_bytes / self._memory_limit
        self.is_overloaded = used >= (_RELIEF if self.is_overloaded else 1.0)
        self._alarms.set(AlarmName.OVERLOAD, self.is_overloaded, detail="resident memory is above its limit")
        level = self._levels.memory_high / 100
        if used >= level:
            self._alarms.raise_(AlarmName.MEMORY_HIGH, detail=f"{used:.0%} of {format_size(self._memory_limit)}")
        elif used < level * _RELIEF:
            self._alarms.clear(AlarmName.MEMORY_HIGH)

    def look_at_certificates(self) -> None:
        """Look at the files now: they may have been replaced."""
        self._certificates_at = self._clock.monotonic() + CERTIFICATE_INTERVAL_S
        for listener, file in self._certificates.items():
            try:
                end = self._probe.certificate_end(file)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                self._alarms.raise_(AlarmName.CERTIFICATE_BAD, subject=listener, detail=f"{file}: {why}")
                continue
            self._alarms.clear(AlarmName.CERTIFICATE_BAD, subject=listener)
            self.certificate_ends[listener] = end
            left_s = end - self._clock.wall()
            is_soon = left_s < self._levels.cert_expiry_s
            days = left_s / 86400
            detail = f"{file} expires in {days:.0f} days" if left_s > 0 else f"{file} expired {-days:.0f} days ago"
            self._alarms.set(AlarmName.CERTIFICATE_EXPIRING, is_soon, subject=listener, detail=detail)
