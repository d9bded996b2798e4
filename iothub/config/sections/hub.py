"""The hub itself: its name, log, protocol and authentication, overload limits and alarm levels."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iothub.base.units import Rate
from iothub.config import value_types
from iothub.config.sections.key import Reload, key

RESERVED_WORDS = ("global", "null", "none", "undefined", "system", "_internal")


@dataclass(frozen=True, slots=True)
class Node:
    """Identity of this hub."""

    name: str = key(value_types.name, "hub-1", "Name of this node in logs, events and status.")
    number: int = key(
        value_types.integer(0, 65535), 0, "Number of this node, part of every message id; different for every hub."
    )
    workers: int = key(
        value_types.workers,
        1,
        'Processes that serve clients on the same ports, each on a CPU of its own; "auto": as many as there are CPUs (guide: Cluster). '
        "They have the node numbers from `number` on.",
    )
    stop_timeout_s: float = key(
        value_types.duration(1, 600),
        10.0,
        "Maximum time of a stop, for closing connections and writing what is pending.",
    )


@dataclass(frozen=True, slots=True)
class Log:
    """The log on standard error."""

    level: str = key(
        value_types.choice("debug", "info", "warning", "error"), "info", "Lowest level that is written.", Reload.NOW
    )
    format: str = key(
        value_types.choice("auto", "json", "text"),
        "auto",
        "json: one object per line; auto: text on a terminal, else JSON.",
        Reload.NOW,
    )
    rate_limit: Rate | None = key(
        value_types.rate,
        Rate(100, 10.0),
        "Maximum rate of lines with the same text, and of lines about connections for each tenant; suppressed lines are counted and reported.",
        Reload.NOW,
    )
    connections: str = key(
        value_types.choice("on", "off"),
        "on",
        "on: log every connect, disconnect and refused CONNECT at level info; off: do not. `iothub rejected` works in both cases.",
        Reload.NOW,
    )


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Names and policies for all tenants."""

    reserved: tuple[str, ...] = key(value_types.words, RESERVED_WORDS, "Names that no tenant may have.", Reload.NOW)
    client_id_policy: str = key(
        value_types.choice("owner", "equal", "prefix"),
        "owner",
        "Client Identifier policy of new tenants: owner (the session remembers its device), "
        "equal (Client Identifier = device name) or prefix (it begins with the device name).",
        Reload.NOW,
    )
    operator: str = key(
        value_types.text,
        "",
        "Name of the tenant whose devices get the figures of the whole hub below $SYS/broker, and the events of hubs and alarms; "
        'a rule must name these topics. "": none.',
    )
    default_plan: str = key(value_types.name, "standard", "Plan of a tenant created without --plan.", Reload.NOW)


@dataclass(frozen=True, slots=True)
class Mqtt:
    """Protocol settings for all tenants."""

    versions: tuple[str, ...] = key(
        value_types.choices("3.1", "3.1.1", "5"),
        ("3.1", "3.1.1", "5"),
        "Protocol versions that clients may use.",
        Reload.NOW,
    )
    connect_timeout_s: float = key(
        value_types.duration(0.5, 300),
        10.0,
        "Maximum time from accepting a connection to its complete CONNECT; then it is closed.",
        Reload.NOW,
    )
    connect_bytes: int = key(
        value_types.size(1 << 10, 1 << 20),
        128 << 10,
        "Largest CONNECT packet; small, because the client is not authenticated yet.",
        Reload.NOW,
    )
    max_inflight: int = key(
        value_types.integer(1, 65535),
        64,
        "Maximum number of unacknowledged QoS 1 and 2 messages to a 3.x client (5.0: its Receive Maximum).",
        Reload.NOW,
    )
    max_keepalive_s: float = key(
        value_types.duration(1, 65535),
        64800.0,
        "Maximum Keep Alive. 5.0 clients get it as Server Keep Alive; for 3.x clients the hub applies it silently.",
        Reload.NOW,
    )
    sys_interval_s: float = key(value_types.duration(1, 3600), 10.0, "How often $SYS topics are published.")
    events_rate: Rate | None = key(
        value_types.rate,
        Rate(2_000, 10.0),
        "Maximum rate of events of one tenant below $events; the rest is counted, and its number published.",
        Reload.NOW,
    )


@dataclass(frozen=True, slots=True)
class Auth:
    """Authentication of devices."""

    failure_reply_ms: int = key(
        value_types.integer(0, 10_000),
        250,
        "Delay of the answer to every failed CONNECT, counted from its arrival, whatever the cause.",
        Reload.NOW,
    )
    hash_pool: int = key(
        value_types.integer(1, 64),
        2,
        "Threads that check passwords (argon2id) and tokens (JWT); generated secrets need none.",
    )
    hash_waiting: int = key(
        value_types.integer(1, 100_000),
        256,
        "Maximum number of checks that wait for such a thread; further ones are refused.",
        Reload.NOW,
    )
    cache_s: float = key(
        value_types.duration(0, 3600), 60.0, "How long an answer of the account store is cached.", Reload.NOW
    )
    cache_entries: int = key(
        value_types.integer(16, 10_000_000), 100_000, "Maximum number of cached answers (LRU).", Reload.NOW
    )
    shared_cache: str = key(
        value_types.choice("off", "redis"),
        "off",
        "Second-level cache of the account store, in Redis (section `redis`), shared by all hubs; it helps a hub that has just started.",
    )
    shared_cache_ttl_s: float = key(
        value_types.duration(10, 30 * 86400),
        86400.0,
        "How long an answer stays in Redis; an outdated one is never used. The answer that a tenant or device is unknown stays one minute.",
    )
    pepper_file: Path | None = key(
        value_types.path,
        None,
        "File with the HMAC key of all secrets. Default: `pepper` in the data directory. Only the hub may be able to read it. "
        "`iothub init` creates it if there are no accounts yet.",
    )
    failures: Rate | None = key(
        value_types.rate,
        Rate(10, 60.0),
        "Rate of failed logins of one device from one address that leads to a ban, on every plan.",
        Reload.NOW,
    )
    ban_s: float = key(value_types.duration(1, 30 * 86400), 900.0, "Duration of such a ban.", Reload.NOW)


@dataclass(frozen=True, slots=True)
class Http:
    """Health and metrics: /livez /readyz /metrics /metrics/tenants /status. They have no login, so the default is loopback."""

    bind: str = key(value_types.address, "127.0.0.1", "Address to listen on.")
    port: int | None = key(value_types.port, None, '0 takes any free port; "off" or no value turns HTTP off.')


@dataclass(frozen=True, slots=True)
class QuotaLedger:
    """Where usage is counted against limits. The limits themselves are quotas, not settings."""

    ledger: str = key(
        value_types.choice("local", "redis"),
        "local",
        '"redis": limits hold over all hubs with these accounts together (guide: Quotas); "local": each hub, with all its workers, grants the '
        "full limit.",
    )


@dataclass(frozen=True, slots=True)
class AlarmLevels:
    """Thresholds of alarms."""

    memory_high: int = key(value_types.percent, 70, "Alarm above this share of `overload.memory_limit`.", Reload.NOW)
    disk_free: int = key(
        value_types.size(0, 1 << 50), 1 << 30, "Alarm below this free space under the data directory.", Reload.NOW
    )
    reactor_lag_s: float = key(
        value_types.duration(0.01, 60),
        0.25,
        "Alarm when the reactor is this late three times in 10 s, or 3 s late once.",
        Reload.NOW,
    )
    cert_expiry_s: float = key(
        value_types.duration(0, 3650 * 86400),
        30 * 86400.0,
        "Alarm when a certificate expires within this time.",
        Reload.NOW,
    )
    checkpoint_age_s: float = key(
        value_types.duration(60, 3650 * 86400),
        26 * 3600.0,
        "Alarm when the last successful `compact_events` is older, if it is scheduled (`jobs.at`) or was ever run.",
        Reload.NOW,
    )
    job_mark_age_s: float = key(
        value_types.duration(60, 3650 * 86400),
        7 * 86400.0,
        "Alarm when a job that a log waits for (`archive`, `usage`) has not run for this time: the log is not trimmed.",
        Reload.NOW,
    )


@dataclass(frozen=True, slots=True)
class Overload:
    """Limits of the whole hub."""

    memory_limit: int = key(
        value_types.size(64 << 20, 1 << 44),
        1 << 30,
        "Resident memory above which new connections are refused; includes the hub's own.",
        Reload.NOW,
    )
    buffered_bytes: int = key(
        value_types.size(1 << 20, 1 << 40),
        256 << 20,
        "Limit for all out-buffers, backlogs and incomplete packets together; above it QoS 0 is dropped, then publishers are paused.",
        Reload.NOW,
    )
    connection_buffer_bytes: int = key(
        value_types.size(16 << 10, 1 << 30),
        4 << 20,
        "Limit for the out-buffer of one connection; above it QoS 0 is dropped, and a client that does not read is closed.",
        Reload.NOW,
    )
    session_backlog_bytes: int = key(
        value_types.size(16 << 10, 1 << 30),
        1 << 20,
        "Limit for messages in memory that wait for one session's window.",
        Reload.NOW,
    )


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics pages."""

    tenant_series_max: int = key(
        value_types.integer(0, 10_000_000),
        20_000,
        "Maximum number of series on /metrics/tenants; the rest is omitted and counted.",
        Reload.NOW,
    )
