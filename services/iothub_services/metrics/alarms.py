"""Alarms: named conditions that somebody should look at, raised once and cleared once.

Knows no threshold and no cause: whoever sees a condition raises its alarm by name. An alarm never stops the hub.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from iothub.base import log
from iothub.base.clock import Clock

Severity = Literal["warning", "critical"]


class AlarmName(Enum):
    """Every alarm: (name, severity, what to do)."""

    DISK_LOW = ("disk_low", "warning", "Free some space under the data directory.")
    DISK_FULL = ("disk_full", "critical", "Free some space; until then durable messages are not acknowledged.")
    STORE_FAILED = (
        "store_failed",
        "critical",
        "Look at the store's disk or servers; what needs it is not acknowledged until it writes again.",
    )
    STORE_CORRUPT = (
        "store_corrupt",
        "critical",
        "The detail says what was put aside, or lost; restore a backup if you miss it.",
    )
    RECORD_DAMAGED = (
        "record_damaged",
        "critical",
        "The hub goes on without it. The detail names the first such record of the store, the log each one; "
        "restore a backup if you miss what was lost.",
    )
    STORE_LOST = ("store_lost", "critical", "Stop the hub and restore a backup if you miss what the store held.")
    ACCOUNTS_UNREACHABLE = (
        "accounts_unreachable",
        "critical",
        "Repair the account store; unknown devices are refused.",
    )
    REDIS_UNREACHABLE = (
        "redis_unreachable",
        "warning",
        "Repair Redis; until it answers, what is on it is by-passed: the guide's page on Redis says what that means.",
    )
    CACHE_FORGED = (
        "cache_forged",
        "critical",
        "Entries in Redis are not used that somebody without this hub's pepper wrote: a hub with another `auth.pepper_file`, or an intruder.",
    )
    QUOTA_DEGRADED = (
        "quota_degraded",
        "warning",
        "Repair Redis; until the ledger answers every hub keeps its last share of the tenants' limits.",
    )
    STREAMS_FAILED = (
        "streams_failed",
        "critical",
        "Look at Kafka: until it takes messages again, publishers to streams are not read, and streams to devices stand still.",
    )
    MEMORY_HIGH = ("memory_high", "warning", "Look for slow consumers, or raise `overload.memory_limit`.")
    OVERLOAD = (
        "overload",
        "critical",
        "New connections are refused until less memory is in use; see `overload.memory_limit`.",
    )
    REACTOR_LAG = ("reactor_lag", "warning", "The hub's turns take too long; look at load and plug-ins.")
    CERTIFICATE_EXPIRING = ("certificate_expiring", "warning", "Replace the listener's certificate and reload.")
    CERTIFICATE_BAD = ("certificate_bad", "critical", "The new certificate cannot be used; the old one still is.")
    CHECKPOINT_STALE = (
        "checkpoint_stale",
        "warning",
        "Look at `iothub job history compact_events`; starts take longer and the log grows until it succeeds.",
    )
    CHECKPOINT_UNUSED = (
        "checkpoint_unused",
        "warning",
        "The start went on from the session states; `iothub job run compact_events` makes a checkpoint that serves, "
        "with `--option from_state=true` where the log has lost something.",
    )
    JOB_MARK_STALE = (
        "job_mark_stale",
        "warning",
        "Run the named job again, or let go of what it holds with `iothub job forget NAME`; until then that log is not trimmed.",
    )

    def __init__(self, word: str, severity: Severity, advice: str) -> None:
        self.word = word
        self.severity: Severity = severity
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Alarm:
    """One raised alarm; `subject` tells two of the same name apart (a store, a listener)."""

    name: AlarmName
    subject: str
    detail: str
    since: float  # Unix time, seconds


Listener = Callable[[Alarm, bool], None]


class Alarms:
    """The raised alarms of this hub.

    Invariants: (name, subject) is raised at most once; log and listeners hear of changes only.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._raised: dict[tuple[AlarmName, str], Alarm] = {}
        self._listeners: list[Listener] = []
        self._log = log.get(__name__)

    def listen(self, listener: Listener) -> None:
        """Call `listener(alarm, is_raised)` at each change."""
        self._listeners.append(listener)

    def set(self, name: AlarmName, is_raised: bool, *, subject: str = "", detail: str = "") -> None:
        """Raise or clear, whichever the condition says; nothing happens when nothing changes."""
        if is_raised:
            self.raise_(name, subject=subject, detail=detail)
        else:
            self.clear(name, subject=subject)

    def raise_(self, name: AlarmName, *, subject: str = "", detail: str = "") -> None:
        if (name, subject) in self._raised:
            return
        alarm = Alarm(name, subject, detail, self._clock.wall())
        self._raised[name, subject] = alarm
        self._log.warning("alarm raised", alarm=name.word, subject=subject, detail=detail, advice=name.advice)
        self._tell(alarm, True)

    def clear(self, name: AlarmName, *, subject: str = "") -> None:
        alarm = self._raised.pop((name, subject), None)
        if alarm is None:
            return
        self._log.info("alarm cleared", alarm=name.word, subject=subject)
        self._tell(alarm, False)

    def active(self) -> list[Alarm]:
        """Return what is raised now, oldest first."""
        return sorted(self._raised.values(), key=lambda alarm: alarm.since)

    def counts(self) -> dict[str, int]:
        """Return the number of raised alarms by severity, for the metric."""
        counts: dict[str, int] = {"warning": 0, "critical": 0}
        for alarm in self._raised.values():
            counts[alarm.name.severity] += 1
        return counts

    def _tell(self, alarm: Alarm, is_raised: bool) -> None:
        for listener in self._listeners:
            listener(alarm, is_raised)
