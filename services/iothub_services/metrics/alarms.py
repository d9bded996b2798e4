"""Alarms: named conditions that an operator should know, raised once and cleared once.

Knows no threshold and no cause: the code that detects a condition raises its alarm by name. An alarm never stops the hub.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from iothub.base import log
from iothub.base.clock import Clock

Severity = Literal["warning", "critical"]

LEVELS: Mapping[Severity, int] = {"warning": logging.WARNING, "critical": logging.ERROR}
"""The log level of an alarm that is raised, by its severity."""


class AlarmName(Enum):
    """Every alarm: (name, severity, what to do)."""

    DISK_LOW = ("disk_low", "warning", "Free disk space under the data directory.")
    DISK_SHORT = (
        "disk_short",
        "critical",
        "Free disk space, or let clients read or purge what waits; until then publishers of durable messages wait or are refused.",
    )
    DISK_FULL = ("disk_full", "critical", "Free disk space; until then durable messages are not acknowledged.")
    STORE_FAILED = (
        "store_failed",
        "critical",
        "Check the store's disk or servers; until it can write again, messages that need it are not acknowledged.",
    )
    STORE_CORRUPT = (
        "store_corrupt",
        "critical",
        "The detail says what was set aside or lost. To get it back, stop the hub and restore a backup.",
    )
    RECORD_DAMAGED = (
        "record_damaged",
        "critical",
        "The hub skips the damaged record. The detail names the first one of the store, the log each one. "
        "To get back what was lost, restore a backup.",
    )
    STORE_LOST = (
        "store_lost",
        "critical",
        "The store's content is lost. To get it back, stop the hub and restore a backup.",
    )
    ACCOUNTS_UNREACHABLE = (
        "accounts_unreachable",
        "critical",
        "Repair the account store; until it answers, devices that are not cached are refused.",
    )
    REDIS_UNREACHABLE = (
        "redis_unreachable",
        "warning",
        "Repair Redis; until it answers, the hub works without it. See the guide, page Redis, for the effects.",
    )
    CACHE_FORGED = (
        "cache_forged",
        "critical",
        "Redis has cache entries that were not made with this hub's pepper; they are ignored. "
        "Find who wrote them: a hub with another `auth.pepper_file`, or an intruder.",
    )
    QUOTA_DEGRADED = (
        "quota_degraded",
        "warning",
        "Repair Redis, or with workers see the log of their store process; until the quota ledger answers, each keeps its last share of the limits.",
    )
    STREAMS_FAILED = (
        "streams_failed",
        "critical",
        "Check Kafka; until it accepts messages again, publishers to streams are paused, and streams to devices stop.",
    )
    MEMORY_HIGH = ("memory_high", "warning", "Find slow consumers, or raise `overload.memory_limit`.")
    OVERLOAD = (
        "overload",
        "critical",
        "New connections are refused until memory use falls; find slow consumers, or raise `overload.memory_limit`.",
    )
    DESCRIPTORS_LOW = (
        "descriptors_low",
        "critical",
        "New connections are refused when no file descriptor is left for them; raise the limit (`LimitNOFILE` in systemd, `ulimit -n`).",
    )
    REACTOR_LAG = (
        "reactor_lag",
        "warning",
        "The reactor is blocked repeatedly or for seconds; check load and plug-ins.",
    )
    CERTIFICATE_EXPIRING = (
        "certificate_expiring",
        "warning",
        "Replace the listener's certificate, then run `iothub config reload`.",
    )
    CERTIFICATE_BAD = (
        "certificate_bad",
        "critical",
        "The new certificate cannot be used, the old one stays in use; correct the file, then run `iothub config reload`.",
    )
    CONFIG_REFUSED = (
        "config_refused",
        "warning",
        "The hub keeps the settings it has. `iothub config check` names every mistake; correct them, then run `iothub config reload`.",
    )
    CHECKPOINT_STALE = (
        "checkpoint_stale",
        "warning",
        "Check `iothub job history compact_events`; until a run succeeds, the log grows and starts take longer.",
    )
    CHECKPOINT_UNUSED = (
        "checkpoint_unused",
        "warning",
        "The start used the session states instead of the checkpoint. Make a new one with `iothub job run compact_events`, "
        "or with `--option from_state=true` if the log is incomplete.",
    )
    PEER_REFUSED = (
        "peer_refused",
        "critical",
        "This hub and another one of its accounts refuse each other, and have no link; the detail has the name of the reason. See the guide, page "
        "Troubleshooting, Hubs do not reach each other.",
    )
    PEER_SILENT = (
        "peer_silent",
        "critical",
        "Another hub writes its heartbeat into the accounts, and the link to it is down; the detail has the cause. Check the network between the two "
        "hubs, and the port of `cluster.listen` there.",
    )
    CLOCK_WRONG = (
        "clock_wrong",
        "critical",
        "The clock of this machine and those of the other hubs differ by more than 5 s: the hub keeps to the time on which they agree or have agreed "
        "last, and a hub that starts serves nobody. Have NTP set the clock of every machine.",
    )
    WORKER_ENDED = (
        "worker_ended",
        "critical",
        "A worker's process has ended, and is not back yet: its clients connect to the other workers. Its supervisor starts it again; the line `a "
        "process of this hub has ended` of the log has the cause.",
    )
    PEER_GONE = (
        "peer_gone",
        "critical",
        "A hub has stopped or hangs: neither its heartbeat nor its link has moved for 10 s, and the others go on without it. Start it again; if it "
        "will not come back, `iothub cluster evict` ends the alarm.",
    )
    PEER_EXPELLED = (
        "peer_expelled",
        "critical",
        "Two hubs live and do not reach each other, so one of them was expelled: it begins again by itself and serves nobody until it reaches all "
        "others. Check the network between the hubs and the port of `cluster.listen`.",
    )
    API_DOWN = (
        "api_down",
        "warning",
        "The REST API does not run; the hub tries again, up to a minute apart. If its port is in use, set another `admin.port`, or "
        '`admin.enabled = "off"`.',
    )
    API_SILENT = (
        "api_silent",
        "warning",
        "The REST API did not answer, so the hub has killed its process and started it again. Its last lines in the log may say why; if it comes "
        "back, look at the load of this machine.",
    )
    WEBHOOK_LOST = (
        "webhook_lost",
        "warning",
        "Events for the webhook were lost in the last ten minutes; `iothub webhook show` has the last attempts. Repair the receiver, or raise "
        "`webhooks.queue_bytes`.",
    )
    JOB_MARK_STALE = (
        "job_mark_stale",
        "warning",
        "The log waits for this job and is not trimmed. Run the job again, or if you no longer need it, `iothub job forget NAME`.",
    )

    def __init__(self, word: str, severity: Severity, advice: str) -> None:
        self.word = word
        self.severity: Severity = severity
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Alarm:
    """One raised alarm; `subject` distinguishes two of the same name (a store, a listener)."""

    name: AlarmName
    subject: str
    detail: str
    since: float  # Unix time, seconds


Listener = Callable[[Alarm, bool], None]


class Alarms:
    """The raised alarms of this hub.

    Invariants: (name, subject) is raised at most once; log and listeners hear when it is raised and cleared, and nothing in between.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._raised: dict[tuple[AlarmName, str], Alarm] = {}
        self._times: dict[tuple[AlarmName, str], int] = {}  # that each of them was found, the first one included
        self._listeners: list[Listener] = []
        self._log = log.get(__name__)

    def listen(self, listener: Listener) -> None:
        """Call `listener(alarm, is_raised)` at each change."""
        self._listeners.append(listener)

    def set(self, name: AlarmName, is_raised: bool, *, subject: str = "", detail: str = "") -> None:
        """Raise or clear the alarm; does nothing without a change."""
        if is_raised:
            self.raise_(name, subject=subject, detail=detail)
        else:
            self.clear(name, subject=subject)

    def raise_(self, name: AlarmName, *, subject: str = "", detail: str = "", is_newest: bool = False) -> None:
        """Raise the alarm; does nothing if it is raised. `is_newest`: its detail becomes this one all the same."""
        raised = self._raised.get((name, subject))
        if raised is not None:
            self._times[name, subject] += 1
            if is_newest:
                self._raised[name, subject] = replace(raised, detail=detail)
            return
        alarm = Alarm(name, subject, detail, self._clock.wall())
        self._raised[name, subject] = alarm
        self._times[name, subject] = 1
        self._log.log(
            LEVELS[name.severity],
            "alarm raised",
            alarm=name.word,
            severity=name.severity,
            subject=subject,
            detail=detail,
            advice=name.advice,
        )
        self._notify(alarm, True)

    def clear(self, name: AlarmName, *, subject: str = "") -> None:
        alarm = self._raised.pop((name, subject), None)
        if alarm is None:
            return
        seconds = round(self._clock.wall() - alarm.since, 1)
        times = self._times.pop((name, subject))
        self._log.info("alarm cleared", alarm=name.word, subject=subject, seconds=seconds, times=times)
        self._notify(alarm, False)

    def active(self) -> list[Alarm]:
        """Return the raised alarms, oldest first."""
        return sorted(self._raised.values(), key=lambda alarm: alarm.since)

    def counts(self) -> dict[str, int]:
        """Return the number of raised alarms by severity, for the metric."""
        counts: dict[str, int] = {"warning": 0, "critical": 0}
        for alarm in self._raised.values():
            counts[alarm.name.severity] += 1
        return counts

    def _notify(self, alarm: Alarm, is_raised: bool) -> None:
        for listener in self._listeners:
            listener(alarm, is_raised)
