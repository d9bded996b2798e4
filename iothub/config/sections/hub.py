"""The hub itself: who it is, what it writes, how many it lets in, when it says no or raises an alarm."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iothub.base.units import Rate
from iothub.config import value_types
from iothub.config.sections.key import key

RESERVED_WORDS = ("global", "null", "none", "undefined", "system", "_internal")


@dataclass(frozen=True, slots=True)
class Node:
    """This hub among others."""

    name: str = key(value_types.name, "hub-1", "Name of this node in logs, events and status.")
    number: int = key(value_types.integer(0, 65535), 0, "The node's field of every message id; differs between nodes.")
    stop_timeout_s: float = key(
        value_types.duration(1, 600), 10.0, "How long a stop may take to say goodbye and to write what is pending."
    )


@dataclass(frozen=True, slots=True)
class Log:
    """What is written to standard error."""

    level: str = key(
        value_types.choice("debug", "info", "warning", "error"), "info", "The least level that is written."
    )
    format: str = key(
        value_types.choice("auto", "json", "text"),
        "auto",
        "One JSON object per line, or text; auto: text on a terminal.",
    )
    rate_limit: Rate | None = key(
        value_types.rate, Rate(100, 10.0), "How often one message text may appear; the surplus is counted and reported."
    )


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Names and policies that all tenants share."""

    reserved: tuple[str, ...] = key(value_types.words, RESERVED_WORDS, "Words that no tenant may have as its name.")
    client_id_policy: str = key(
        value_types.choice("owner", "equal", "prefix"),
        "owner",
        "Client Identifier policy of new tenants: owner (the session remembers its device), "
        "equal (Client Identifier = device name) or prefix (it begins with the device name).",
    )
    default_plan: str = key(value_types.name, "standard", "Plan of a tenant that is created without one.")


@dataclass(frozen=True, slots=True)
class Mqtt:
    """The protocol, as far as it does not differ between tenants."""

    versions: tuple[str, ...] = key(
        value_types.choices("3.1", "3.1.1", "5"), ("3.1", "3.1.1", "5"), "Protocol versions that are spoken."
    )
    connect_timeout_s: float = key(
        value_types.duration(0.5, 300), 10.0, "From accept to a complete CONNECT; whoever takes longer is closed."
    )
    connect_bytes: int = key(
        value_types.size(1 << 10, 1 << 20), 128 << 10, "Largest CONNECT packet: nobody has been authenticated yet."
    )
    max_inflight: int = key(
        value_types.integer(1, 65535),
        64,
        "Unacknowledged QoS 1 and 2 messages towards a 3.x client (5.0: its Receive Maximum).",
    )
    max_keepalive_s: float = key(
        value_types.duration(1, 65535), 64800.0, "Longest Keep Alive; 5.0 clients are told, 3.x clients are held to it."
    )
    sys_interval_s: float = key(value_types.duration(1, 3600), 10.0, "How often $SYS topics are published.")


@dataclass(frozen=True, slots=True)
class Auth:
    """Who a device is."""

    failure_reply_ms: int = key(
        value_types.integer(0, 10_000),
        250,
        "Every failed CONNECT is answered this long after its arrival, whatever the cause.",
    )
    hash_pool: int = key(
        value_types.integer(1, 64), 2, "Threads that check chosen passwords (argon2id) and tokens (JWT)."
    )
    hash_waiting: int = key(
        value_types.integer(1, 100_000),
        256,
        "Checks of passwords and tokens that may wait for a thread; the next is refused.",
    )
    cache_s: float = key(value_types.duration(0, 3600), 60.0, "How long an answer of the account store is remembered.")
    cache_entries: int = key(value_types.integer(16, 10_000_000), 100_000, "Answers that are remembered at once (LRU).")
    shared_cache: str = key(
        value_types.choice("off", "redis"),
        "off",
        "A second level behind that: answers of the account store in Redis (section `redis`), for all hubs and for one that was just started.",
    )
    shared_cache_ttl_s: float = key(
        value_types.duration(10, 30 * 86400),
        86400.0,
        "How long they lie there; what has changed since is not used, however long. Answers that somebody is unknown: a minute.",
    )
    pepper_file: Path | None = key(
        value_types.path,
        None,
        "Key of the secrets' HMAC; without it `pepper` in the data directory. Must be readable by the hub alone. `iothub init` makes it "
        "where no accounts need it yet.",
    )
    failures: Rate | None = key(
        value_types.rate,
        Rate(10, 60.0),
        "Failed logins of one device from one address that lead to a ban; off for plan `unlimited`.",
    )
    ban_s: float = key(value_types.duration(1, 30 * 86400), 900.0, "How long such a ban lasts.")


@dataclass(frozen=True, slots=True)
class Http:
    """Health and metrics: /livez /readyz /metrics /metrics/tenants /status. They know no login, hence loopback."""

    bind: str = key(value_types.address, "127.0.0.1", "Address to listen on.")
    port: int | None = key(value_types.port, None, '0 takes any free port; without a port, or "off", there is no HTTP.')


@dataclass(frozen=True, slots=True)
class QuotaLedger:
    """Where hubs count what tenants use. The limits themselves are quotas, not settings."""

    ledger: str = key(
        value_types.choice("local", "redis"),
        "local",
        '"redis": the hubs with these accounts share the limits (guide: Quotas); "local": each hub grants all.',
    )


@dataclass(frozen=True, slots=True)
class AlarmLevels:
    """When the hub raises an alarm."""

    memory_high: int = key(value_types.percent, 70, "Share of `overload.memory_limit` in use.")
    disk_free: int = key(
        value_types.size(0, 1 << 50), 1 << 30, "Free space under the data directory below which there is an alarm."
    )
    reactor_lag_s: float = key(value_types.duration(0.01, 60), 0.25, "How late the hub's own clock tick may be.")
    cert_expiry_s: float = key(
        value_types.duration(0, 3650 * 86400), 30 * 86400.0, "How long before it ends a certificate is reported."
    )
    checkpoint_age_s: float = key(
        value_types.duration(60, 3650 * 86400),
        26 * 3600.0,
        "How long ago the last good `compact_events` may be, where it is scheduled (`jobs.at`) or was ever run.",
    )
    job_mark_age_s: float = key(
        value_types.duration(60, 3650 * 86400),
        7 * 86400.0,
        "How long ago a job that holds a log from being trimmed (`archive`, `usage`) may have run.",
    )


@dataclass(frozen=True, slots=True)
class Overload:
    """Where the hub as a whole says no."""

    memory_limit: int = key(
        value_types.size(64 << 20, 1 << 44),
        1 << 30,
        "Resident memory above which new connections are refused; the hub itself must fit.",
    )
    buffered_bytes: int = key(
        value_types.size(1 << 20, 1 << 40),
        256 << 20,
        "All out-buffers, backlogs and incomplete packets together; QoS 0 is dropped first, then publishers pause.",
    )
    connection_buffer_bytes: int = key(
        value_types.size(16 << 10, 1 << 30),
        4 << 20,
        "Out-buffer of one connection; above it QoS 0 is dropped, and a client that never reads is closed.",
    )
    session_backlog_bytes: int = key(
        value_types.size(16 << 10, 1 << 30), 1 << 20, "Messages that wait in memory for one session's window."
    )


@dataclass(frozen=True, slots=True)
class Metrics:
    """What /metrics shows."""

    tenant_series_max: int = key(
        value_types.integer(0, 10_000_000),
        20_000,
        "Series on one page of /metrics/tenants; the rest is counted and left out.",
    )
