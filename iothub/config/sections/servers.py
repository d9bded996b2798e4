"""The servers that a hub can use."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iothub.base.units import Endpoint
from iothub.config import value_types
from iothub.config.sections.key import Reload, key


@dataclass(frozen=True, slots=True)
class Sql:
    """Accounts: tenants, devices, rules, plans, quotas."""

    url_file: Path | None = key(
        value_types.path, None, "File with a SQLAlchemy URL. Default: `accounts.db` (SQLite) in the data directory."
    )
    poll_interval_s: float = key(value_types.duration(0.05, 1), 0.25, "How often a hub polls for changes by others.")
    connections: int = key(
        value_types.integer(2, 200), 8, "SQL server only: maximum number of connections of one hub or command."
    )
    connect_timeout_s: float = key(
        value_types.duration(1, 60), 5.0, "SQL server only: time limit for a new connection."
    )
    timeout_s: float = key(
        value_types.duration(1, 300), 5.0, "SQL server only: time limit for a statement or a wait for a lock."
    )
    recycle_s: float = key(
        value_types.duration(10, 86_400), 1800.0, "SQL server only: maximum age of a connection before it is replaced."
    )


@dataclass(frozen=True, slots=True)
class HBase:
    """HBase, used with `queues.driver`, `state.driver` or `retained.driver` = "hbase", through its Thrift 1 gateways (framed)."""

    thrift: tuple[Endpoint, ...] = key(
        value_types.endpoints,
        (),
        "Thrift gateways. Connections are spread over them; if one fails, the next one is used.",
    )
    namespace: str = key(
        value_types.identifier,
        "iothub",
        "HBase namespace of the hub's tables. Hubs with the same namespace share sessions and queues and must use the same accounts.",
    )
    regions: int = key(
        value_types.integer(1, 256),
        128,
        "Number of regions with which the tables for queues and bodies are created; cannot be changed later.",
    )
    connections: int = key(
        value_types.integer(1, 64), 2, "Number of connections to each gateway; a queue always uses the same one."
    )
    in_flight: int = key(
        value_types.integer(1, 4096),
        64,
        "Maximum number of unanswered calls on one connection; further calls wait in the hub.",
    )
    in_flight_bytes: int = key(
        value_types.size(64 << 10, 1 << 30),
        8 << 20,
        "Maximum size of the unanswered calls on one connection; further calls wait in the hub.",
    )
    frame_limit: int = key(
        value_types.size(64 << 10, 1 << 30),
        16 << 20,
        "Largest call and answer; hbase.regionserver.thrift.framed.max_frame_size_in_mb of the gateway must not be smaller.",
    )
    timeout_s: float = key(
        value_types.duration(0.1, 600),
        10.0,
        "Maximum silence of a connection with open calls; then it is closed, and its calls are tried again.",
    )
    sweep_interval_s: float = key(
        value_types.duration(0, 365 * 86400),
        86_400.0,
        "How often one of the hubs deletes bodies that no queue refers to; 0s: never, use `iothub hbase sweep`.",
    )
    admin_program: Path | None = key(
        value_types.path,
        None,
        "Program that runs a Java class with HBase's configuration, for `iothub hbase create-tables`. "
        "Default: HBase's `hbase`, found in PATH.",
        Reload.NOW,
    )


@dataclass(frozen=True, slots=True)
class Kafka:
    """The Kafka cluster, used by streams and with `events.driver` = "kafka". Needs the extra `kafka`: pip install 'iothub[kafka]'."""

    brokers: tuple[Endpoint, ...] = key(
        value_types.endpoints,
        (),
        "Bootstrap brokers, such as kafka-1:9092; these name the other brokers.",
    )
    topic_prefix: str = key(
        value_types.name,
        "iothub",
        "Prefix of the hub's topics: PREFIX.session-events, PREFIX.analytics-events, PREFIX.installation, PREFIX.TENANT.STREAM.",
    )
    partitions: int = key(
        value_types.integer(1, 1000),
        16,
        "Number of partitions of the topics for session events and statistics. Never change it: it determines the partition of each session.",
    )
    replication: int = key(
        value_types.integer(1, 32),
        3,
        "Number of copies of every record; with 3 or more, 2 copies must exist before a record is acknowledged.",
    )
    analytics_retention_s: float = key(
        value_types.duration(3600, 3650 * 86400),
        7 * 86400.0,
        "How long Kafka keeps events for statistics, such as usage.",
    )
    timeout_s: float = key(
        value_types.duration(0.5, 60), 3.0, "Time limit for an answer of a broker; then the hub tries again."
    )
    security_protocol: str = key(
        value_types.choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "PLAINTEXT",
        "Security protocol of the brokers' listener.",
    )
    ca_file: Path | None = key(
        value_types.path, None, "Authorities for the brokers' certificates (PEM). Default: those of the system."
    )
    cert_file: Path | None = key(
        value_types.path, None, "Client certificate for the brokers (PEM), if they require one."
    )
    key_file: Path | None = key(
        value_types.path, None, "Private key of `cert_file` (PEM); only the hub should be able to read it."
    )
    sasl_mechanism: str = key(
        value_types.choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), "SCRAM-SHA-512", "SASL mechanism."
    )
    sasl_username: str = key(value_types.text, "", "User name, for a SASL protocol.")
    sasl_password_file: Path | None = key(
        value_types.path, None, "File with the password, for a SASL protocol; only the hub should be able to read it."
    )


@dataclass(frozen=True, slots=True)
class Redis:
    """Redis, used with `auth.shared_cache`, `quota.ledger` or `queues.driver` = "redis". Needs the extra `redis`: pip install 'iothub[redis]'."""

    addresses: tuple[Endpoint, ...] = key(
        value_types.endpoints,
        (),
        "Redis servers, of which the hub uses the master; with `sentinel_name`: the Sentinels.",
    )
    sentinel_name: str = key(
        value_types.text,
        "",
        "Name of the master at the Sentinels; `addresses` are then those of the Sentinels, usually with port 26379.",
    )
    database: int = key(value_types.integer(0, 65535), 0, "Number of the database.")
    username: str = key(value_types.text, "", "User name, if Redis has users (ACL).")
    password_file: Path | None = key(
        value_types.path, None, "File with the password, if Redis requires one; only the hub should be able to read it."
    )
    security: str = key(value_types.choice("plain", "tls"), "plain", "Whether the server's port uses TLS.")
    ca_file: Path | None = key(
        value_types.path, None, "Authorities for Redis's certificate (PEM). Default: those of the system."
    )
    cert_file: Path | None = key(value_types.path, None, "Client certificate for Redis (PEM), if it requires one.")
    key_file: Path | None = key(
        value_types.path, None, "Private key of `cert_file` (PEM); only the hub should be able to read it."
    )
    prefix: str = key(
        value_types.name,
        "iothub",
        "Prefix of the hub's keys: PREFIX:ID:... with the id of the installation; for queues PREFIX:queue:...",
    )
    timeout_s: float = key(
        value_types.duration(0.05, 30),
        1.0,
        "Maximum silence of Redis; then the hub works without it until it answers again. No request waits much longer than this.",
    )
