"""What is kept where: queues, events, session states, retained messages, streams."""

from __future__ import annotations

from dataclasses import dataclass

from iothub.base.units import QueueChoice
from iothub.config import value_types
from iothub.config.sections.key import key

QUEUE_DRIVERS = ("sqlite", "hbase", "redis")
_REMOVED_DRIVERS = {"hbase-plain": "use hbase (with the iothub-hbase jar on the region servers), redis or sqlite"}


@dataclass(frozen=True, slots=True)
class Queues:
    """The virtual queues of persistent sessions. How long they may become is a quota of the plan."""

    driver: str = key(
        value_types.choice(*QUEUE_DRIVERS, removed=_REMOVED_DRIVERS),
        "sqlite",
        "Where the queues are: `queues.db` in the data directory; HBase (section `hbase`), whose region servers need the iothub-hbase jar; "
        "or Redis (section `redis`), in its memory and its append-only file.",
    )
    choices: tuple[QueueChoice, ...] = key(
        value_types.queue_choices(*QUEUE_DRIVERS, removed=_REMOVED_DRIVERS),
        (),
        "Other drivers for the queues of some tenants; the first table that fits counts. "
        "A tenant that has queues stays with the driver that has them.",
    )
    overflow: str = key(
        value_types.choice("reject", "drop-oldest", "drop-qos0-first"),
        "drop-qos0-first",
        "What a full queue does with the next message.",
    )
    redis_durability: str = key(
        value_types.choice("disk", "memory"),
        "disk",
        "When a message for a queue in Redis counts as stored: when it is in the append-only file and synced (a server that is set otherwise is "
        "refused), or when it is in Redis's memory: then a crash of Redis loses what was acknowledged.",
    )
    pending_bytes: int = key(
        value_types.size(1 << 20, 1 << 34), 64 << 20, "Messages on their way to disk; above it publishers are paused."
    )
    give_up_s: float = key(
        value_types.duration(1, 600),
        30.0,
        "How long a failing store is tried before a publisher gets a refusal instead of silence.",
    )
    poll_interval_s: float = key(
        value_types.duration(0.1, 60), 1.0, "How often caught-up sessions look for a missed notification."
    )


def driver_of(queues: Queues, tenant: str) -> str:
    """Return the driver that is chosen for a tenant's queues."""
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
    """The session-event log: what every session did, from which its state is folded."""

    driver: str = key(
        value_types.choice("sqlite", "kafka"),
        "sqlite",
        "Where the log is: `events.db` in the data directory, or topics of the Kafka cluster of section `kafka`.",
    )
    usage_interval_s: float = key(
        value_types.duration(1, 3600),
        60.0,
        "How often the usage of every tenant is written to the log; a hub that is killed loses what it has counted since.",
    )
    analytics_retention_s: float = key(
        value_types.duration(3600, 3650 * 86400),
        7 * 86400.0,
        "How long `events.db` keeps events that are only for statistics, such as usage (Kafka: `kafka.analytics_retention`).",
    )
    analytics_most: int = key(
        value_types.integer(1_000, 1_000_000_000),
        2_000_000,
        "How many of them `events.db` keeps, about 400 bytes each; a job that copies them out holds them until it has run.",
    )


@dataclass(frozen=True, slots=True)
class State:
    """The folded states of the sessions, written behind the session-event log."""

    driver: str = key(
        value_types.choice("sqlite", "hbase"),
        "sqlite",
        "Where the states are: `state.db` in the data directory, or HBase (section `hbase`).",
    )


@dataclass(frozen=True, slots=True)
class Retained:
    """Retained messages."""

    driver: str = key(
        value_types.choice("sqlite", "hbase"),
        "sqlite",
        "Where they are: `retained.db` in the data directory, or HBase (section `hbase`).",
    )


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams to and from Kafka (section `kafka` says where that is). Which there are is with the tenants: `iothub stream`."""

    partitions: int = key(
        value_types.integer(1, 1000),
        4,
        "Partitions of a new stream's topic: its order is kept per publisher, not beyond.",
    )
    retention_s: float = key(
        value_types.duration(60, 3650 * 86400), 7 * 86400.0, "How long Kafka keeps the messages of a new stream."
    )
    pending_bytes: int = key(
        value_types.size(1 << 20, 1 << 34),
        64 << 20,
        "Messages of all tenants on their way to Kafka; above it publishers to streams are paused.",
    )
    tenant_pending_bytes: int = key(
        value_types.size(1 << 16, 1 << 32),
        4 << 20,
        "The same of one tenant, so that none takes the room of the others.",
    )
