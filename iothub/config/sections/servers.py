"""Servers that a hub may use, and how it uses them."""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iothub.base.units import Endpoint
from iothub.config import value_types
from iothub.config.sections.key import key


@dataclass(frozen=True, slots=True)
class Sql:
    """Accounts: tenants, devices, rules, plans, quotas."""

    url_file: Path | None = key(
        value_types.path, None, "File with a SQLAlchemy URL; without it `accounts.db` (SQLite)."
    )
    poll_interval_s: float = key(
        value_types.duration(0.05, 1), 0.25, "How often a hub looks for changes that others made."
    )
    connections: int = key(
        value_types.integer(2, 200), 8, "On a server: most connections of one hub or command at once."
    )
    connect_timeout_s: float = key(value_types.duration(1, 60), 5.0, "On a server: how long a new connection may take.")
    timeout_s: float = key(value_types.duration(1, 300), 5.0, "On a server: how long a statement, or a wait, may take.")
    recycle_s: float = key(value_types.duration(10, 86_400), 1800.0, "On a server: older connections are replaced.")


@dataclass(frozen=True, slots=True)
class HBase:
    """HBase, used when `queues.driver`, `state.driver` or `retained.driver` says so: reached through its Thrift 1 gateways, framed."""

    thrift: tuple[Endpoint, ...] = key(
        value_types.endpoints, (), "Gateways; connections are spread over them, and go to the next one when one fails."
    )
    namespace: str = key(
        value_types.identifier,
        "iothub",
        "HBase namespace of our tables; hubs that share one share sessions and queues, and must have the same accounts.",
    )
    regions: int = key(
        value_types.integer(1, 256),
        128,
        "Regions that the tables of queues and bodies are created with; fixed from then on.",
    )
    connections: int = key(
        value_types.integer(1, 64), 2, "Connections to each gateway; a queue always uses the same one."
    )
    in_flight: int = key(
        value_types.integer(1, 4096),
        64,
        "Calls on one connection that may wait for their answers; further ones wait here.",
    )
    in_flight_bytes: int = key(
        value_types.size(64 << 10, 1 << 30), 8 << 20, "Bytes of such calls; above it further ones wait here."
    )
    frame_limit: int = key(
        value_types.size(64 << 10, 1 << 30),
        16 << 20,
        "Largest call and answer; the gateway's hbase.regionserver.thrift.framed.max_frame_size_in_mb must allow as much.",
    )
    timeout_s: float = key(
        value_types.duration(0.1, 600),
        10.0,
        "How long a connection with open calls may be silent; then it is given up, and its calls are tried again.",
    )
    sweep_interval_s: float = key(
        value_types.duration(0, 365 * 86400),
        86_400.0,
        "How often one of the hubs deletes bodies that no queue refers to any more; 0s: never, but `iothub hbase sweep` does.",
    )
    admin_program: Path | None = key(
        value_types.path,
        None,
        "Program that runs a Java class with HBase's configuration, for `iothub hbase create-tables`; "
        "without it HBase's own `hbase`, looked for in PATH.",
    )


@dataclass(frozen=True, slots=True)
class Kafka:
    """The Kafka cluster, used when `events.driver` is `kafka`, and by streams. Needs the extra `kafka`: pip install 'iothub[kafka]'."""

    brokers: tuple[Endpoint, ...] = key(
        value_types.endpoints,
        (),
        "Some brokers to begin with, such as kafka-1:9092; the others are found by asking these.",
    )
    topic_prefix: str = key(
        value_types.name,
        "iothub",
        "What our topics begin with: PREFIX.session-events, PREFIX.analytics-events, PREFIX.installation, PREFIX.TENANT.STREAM.",
    )
    partitions: int = key(
        value_types.integer(1, 1000),
        16,
        "Partitions of the topics that the hub makes; never changed afterwards: it decides where a session's events are.",
    )
    replication: int = key(
        value_types.integer(1, 32),
        3,
        "Copies of every record; with 3 or more, 2 must have it before it is acknowledged.",
    )
    analytics_retention_s: float = key(
        value_types.duration(3600, 3650 * 86400),
        7 * 86400.0,
        "How long Kafka keeps events that are only for analytics.",
    )
    timeout_s: float = key(
        value_types.duration(0.5, 60), 3.0, "How long a broker may take to answer before another attempt is made."
    )
    security_protocol: str = key(
        value_types.choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "PLAINTEXT",
        "As the brokers' listener has it.",
    )
    ca_file: Path | None = key(
        value_types.path, None, "Authorities that sign the brokers' certificates (PEM); without it those of the system."
    )
    cert_file: Path | None = key(value_types.path, None, "Certificate to show to the brokers (PEM), if they want one.")
    key_file: Path | None = key(value_types.path, None, "Its private key (PEM); readable by the hub alone.")
    sasl_mechanism: str = key(
        value_types.choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), "SCRAM-SHA-512", "How the password is proved."
    )
    sasl_username: str = key(value_types.text, "", "User name, with a SASL protocol.")
    sasl_password_file: Path | None = key(
        value_types.path, None, "File with the password, with a SASL protocol; readable by the hub alone."
    )


@dataclass(frozen=True, slots=True)
class Redis:
    """Redis, used where another setting says so. Needs the extra `redis`: pip install 'iothub[redis]'."""

    addresses: tuple[Endpoint, ...] = key(
        value_types.endpoints, (), "Servers, of which the hub uses the master; or the Sentinels, with `sentinel_name`."
    )
    sentinel_name: str = key(
        value_types.text,
        "",
        "What the Sentinels call the master; then the addresses are theirs, usually with port 26379.",
    )
    database: int = key(value_types.integer(0, 65535), 0, "Number of the database.")
    username: str = key(value_types.text, "", "User name, where Redis has users (ACL).")
    password_file: Path | None = key(
        value_types.path, None, "File with the password, if Redis wants one; readable by the hub alone."
    )
    security: str = key(
        value_types.choice("plain", "tls"), "plain", "How the connection is made, as the server's port has it."
    )
    ca_file: Path | None = key(
        value_types.path, None, "Authorities that sign Redis's certificate (PEM); without it those of the system."
    )
    cert_file: Path | None = key(value_types.path, None, "Certificate to show to Redis (PEM), if it wants one.")
    key_file: Path | None = key(value_types.path, None, "Its private key (PEM); readable by the hub alone.")
    prefix: str = key(
        value_types.name,
        "iothub",
        "What our keys begin with, before the id of the installation: PREFIX:ID:...; those of queues: PREFIX:queue:...",
    )
    timeout_s: float = key(
        value_types.duration(0.05, 30),
        1.0,
        "How long Redis may be silent; then it is by-passed until it answers again. Nobody waits much longer than this.",
    )
