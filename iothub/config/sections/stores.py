"""Where data is stored: queues, events, session states, retained messages, streams."""

from __future__ import annotations

from dataclasses import dataclass

from iothub.base.units import QueueChoice
from iothub.config import value_types
from iothub.config.sections.key import key

QUEUE_DRIVERS = ("sqlite", "hbase", "redis")
_REMOVED_DRIVERS = {"hbase-plain": "use hbase (with the iothub-hbase jar on the region servers), redis or sqlite"}


@dataclass(frozen=True, slots=True)
class Queues:
    """The virtual queues of persistent sessions. Their maximum length is a quota of the plan."""

    driver: str = key(
        value_types.choice(*QUEUE_DRIVERS, removed=_REMOVED_DRIVERS),
        "sqlite",
        "Store of the queues. sqlite: `queues.db` in the data directory; hbase: HBase (section `hbase`), with the iothub-hbase jar on its region "
        "servers; redis: Redis (section `redis`), in its memory and its append-only file.",
    )
    journal: bool = key(
        value_types.flag,
        True,
        "sqlite: write what changes to a journal first (folder `queues.journal` in the data directory), and to `queues.db` only what stays: "
        "a message that is acknowledged soon never gets there. false: write everything to `queues.db` at once, which is slower and takes less "
        "disk space.",
    )
    journal_bytes: int = key(
        value_types.size(128 << 20, 1 << 30),
        1 << 30,
        "Limit for the journal's files; above it the oldest messages are moved to `queues.db`. 800,000 changes are the limit as well, "
        "because a start does them again. While a file is replaced there is one of 32 MiB more.",
    )
    choices: tuple[QueueChoice, ...] = key(
        value_types.queue_choices(*QUEUE_DRIVERS, removed=_REMOVED_DRIVERS),
        (),
        "Other drivers for the queues of some tenants; the first matching table applies. "
        "A tenant that already has queues keeps its driver.",
    )
    overflow: str = key(
        value_types.choice("reject", "drop-oldest", "drop-qos0-first"),
        "drop-qos0-first",
        "What happens to the next message of a full queue.",
    )
    redis_durability: str = key(
        value_types.choice("disk", "memory"),
        "disk",
        "When a message in a Redis queue counts as stored. disk: when it is synced to the append-only file (the start is refused if the server "
        "is not configured for it); memory: when Redis has it in memory, so a crash of Redis loses acknowledged messages.",
    )
    pending_bytes: int = key(
        value_types.size(1 << 20, 1 << 34),
        64 << 20,
        "Limit for messages that wait to be stored; above it publishers are paused.",
    )
    give_up_s: float = key(
        value_types.duration(1, 600),
        30.0,
        "How long a failing store is retried before a publisher gets an error instead of no answer.",
    )
    poll_interval_s: float = key(
        value_types.duration(0.1, 60),
        10.0,
        "How often a session without waiting messages checks for a missed notification.",
    )


def driver_of(queues: Queues, tenant: str) -> str:
    """Return the driver of a tenant's queues."""
    return next((choice.driver for choice in queues.choices if choice.fits(tenant)), queues.driver)


def chosen_tenants(queues: Queues) -> dict[str, int]:
    """Return the tenants that `choices` names, with the number of the first table that does, counted from 1."""
    named: dict[str, int] = {}
    for number, choice in enumerate(queues.choices, 1):
        for tenant in choice.tenants:
            named.setdefault(tenant, number)
    return named


@dataclass(frozen=True, slots=True)
class Events:
    """The session-event log: what every session did; the session states are computed from it."""

    driver: str = key(
        value_types.choice("sqlite", "kafka"),
        "sqlite",
        "Store of the log. sqlite: `events.db` in the data directory; kafka: topics in Kafka (section `kafka`).",
    )
    usage_interval_s: float = key(
        value_types.duration(1, 3600),
        60.0,
        "How often the usage of every tenant is written to the log; a killed hub loses what it counted since the last time.",
    )
    analytics_retention_s: float = key(
        value_types.duration(3600, 3650 * 86400),
        7 * 86400.0,
        "How long `events.db` keeps events for statistics, such as usage (Kafka: `kafka.analytics_retention`).",
    )
    analytics_most: int = key(
        value_types.integer(1_000, 1_000_000_000),
        2_000_000,
        "Maximum number of such events in `events.db`, about 400 bytes each; events that a job has not copied yet are kept beyond it.",
    )


@dataclass(frozen=True, slots=True)
class State:
    """The session states, computed from the session-event log and written after it."""

    driver: str = key(
        value_types.choice("sqlite", "hbase"),
        "sqlite",
        "Store of the states. sqlite: `state.db` in the data directory; hbase: HBase (section `hbase`).",
    )


@dataclass(frozen=True, slots=True)
class Retained:
    """Retained messages."""

    driver: str = key(
        value_types.choice("sqlite", "hbase"),
        "sqlite",
        "Store of the retained messages. sqlite: `retained.db` in the data directory; hbase: HBase (section `hbase`).",
    )


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams to and from Kafka (section `kafka`). The streams themselves belong to tenants: `iothub stream`."""

    partitions: int = key(
        value_types.integer(1, 1000),
        4,
        "Number of partitions of a new stream's topic; the order is kept per publisher only.",
    )
    retention_s: float = key(
        value_types.duration(60, 3650 * 86400), 7 * 86400.0, "How long Kafka keeps the messages of a new stream."
    )
    pending_bytes: int = key(
        value_types.size(1 << 20, 1 << 34),
        64 << 20,
        "Limit for messages of all tenants that wait for Kafka; above it publishers to streams are paused.",
    )
    tenant_pending_bytes: int = key(
        value_types.size(1 << 16, 1 << 32),
        4 << 20,
        "The same limit for one tenant, so that no tenant blocks the others.",
    )
