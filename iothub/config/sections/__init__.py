"""Every setting of a hub: one frozen dataclass per section, and for each key its kind, its default, a sentence and when it takes effect.

Knows no file, no environment and no command line: `iothub.config.loader` reads those into these classes. Limits of tenants
(packet sizes, rates, counts) are not settings but quotas of plans: they differ per tenant and change at run time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iothub.config.sections.admin import Admin, Oidc
from iothub.config.sections.cluster import Cluster
from iothub.config.sections.hub import (
    RESERVED_WORDS,
    AlarmLevels,
    Auth,
    Http,
    Log,
    Metrics,
    Mqtt,
    Node,
    Overload,
    QuotaLedger,
    Tenancy,
)
from iothub.config.sections.jobs import NIGHTLY_JOBS, Jobs, Spark
from iothub.config.sections.key import Key, Reload
from iothub.config.sections.listeners import (
    Listener,
    Listeners,
    TcpListener,
    TlsListener,
    WsListener,
    WssListener,
    kind_of,
)
from iothub.config.sections.servers import HBase, Kafka, Redis, Sql
from iothub.config.sections.stores import QUEUE_DRIVERS, Events, Queues, Retained, State, Streams
from iothub.config.sections.webhooks import Webhooks

__all__ = [
    "NIGHTLY_JOBS",
    "QUEUE_DRIVERS",
    "RESERVED_WORDS",
    "Admin",
    "AlarmLevels",
    "Auth",
    "Cluster",
    "Config",
    "Events",
    "HBase",
    "Http",
    "Jobs",
    "Kafka",
    "Key",
    "Listener",
    "Listeners",
    "Log",
    "Metrics",
    "Mqtt",
    "Node",
    "Oidc",
    "Overload",
    "Queues",
    "QuotaLedger",
    "Redis",
    "Reload",
    "Retained",
    "Spark",
    "Sql",
    "State",
    "Streams",
    "TcpListener",
    "Tenancy",
    "TlsListener",
    "Webhooks",
    "WsListener",
    "WssListener",
    "kind_of",
]


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a hub, checked. Immutable; nothing reads the environment after it was made."""

    node: Node = field(default_factory=Node)
    log: Log = field(default_factory=Log)
    tenancy: Tenancy = field(default_factory=Tenancy)
    mqtt: Mqtt = field(default_factory=Mqtt)
    queues: Queues = field(default_factory=Queues)
    events: Events = field(default_factory=Events)
    state: State = field(default_factory=State)
    cluster: Cluster = field(default_factory=Cluster)
    retained: Retained = field(default_factory=Retained)
    kafka: Kafka = field(default_factory=Kafka)
    redis: Redis = field(default_factory=Redis)
    streams: Streams = field(default_factory=Streams)
    quota: QuotaLedger = field(default_factory=QuotaLedger)
    listeners: Listeners = field(default_factory=Listeners)
    auth: Auth = field(default_factory=Auth)
    http: Http = field(default_factory=Http)
    admin: Admin = field(default_factory=Admin)
    sql: Sql = field(default_factory=Sql)
    hbase: HBase = field(default_factory=HBase)
    spark: Spark = field(default_factory=Spark)
    jobs: Jobs = field(default_factory=Jobs)
    alarms: AlarmLevels = field(default_factory=AlarmLevels)
    overload: Overload = field(default_factory=Overload)
    metrics: Metrics = field(default_factory=Metrics)
    webhooks: Webhooks = field(default_factory=Webhooks)
