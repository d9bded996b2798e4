"""Every setting of a hub: one frozen dataclass per section, and for each key its kind, its default and a sentence.

Knows no file, no environment and no command line: `iothub.config` reads those into these classes. Limits of tenants
(packet sizes, rates, counts) are not settings but quotas of plans: they differ per tenant and change at run time.
"""
# ruff: noqa: RUF009 - `key` is evaluated once per class, as `field` is; its defaults are immutable

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from iothub import kinds
from iothub.kinds import Kind
from iothub.units import Endpoint, Network, QueueChoice, Rate

T = TypeVar("T")

QUEUE_DRIVERS = ("sqlite", "hbase", "hbase-plain", "redis")
NIGHTLY_JOBS = ("compact_events", "usage", "archive", "insights", "verify")
RESERVED_WORDS = ("global", "null", "none", "undefined", "system", "_internal")


@dataclass(frozen=True, slots=True)
class Key:
    """What the program knows about one setting besides its default."""

    kind: Kind[object]
    sentence: str


def key(kind: Kind[T], default: T, sentence: str) -> T:
    """Declare one setting (typed as its value, as `dataclasses.field` is)."""
    return field(default=default, metadata={"key": Key(cast("Kind[object]", kind), sentence)})


@dataclass(frozen=True, slots=True)
class Node:
    """This hub among others."""

    name: str = key(kinds.name, "hub-1", "Name of this node in logs, events and status.")
    number: int = key(kinds.integer(0, 65535), 0, "The node's field of every message id; differs between nodes.")
    stop_timeout_s: float = key(
        kinds.duration(1, 600), 10.0, "How long a stop may take to say goodbye and to write what is pending."
    )


@dataclass(frozen=True, slots=True)
class Log:
    """What is written to standard error."""

    level: str = key(kinds.choice("debug", "info", "warning", "error"), "info", "The least level that is written.")
    format: str = key(
        kinds.choice("auto", "json", "text"), "auto", "One JSON object per line, or text; auto: text on a terminal."
    )
    rate_limit: Rate | None = key(
        kinds.rate, Rate(100, 10.0), "How often one message text may appear; the surplus is counted and reported."
    )


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Names and policies that all tenants share."""

    reserved: tuple[str, ...] = key(kinds.words, RESERVED_WORDS, "Words that no tenant may have as its name.")
    client_id_policy: str = key(
        kinds.choice("owner", "equal", "prefix"),
        "owner",
        "Client Identifier policy of new tenants: owner (the session remembers its device), "
        "equal (Client Identifier = device name) or prefix (it begins with the device name).",
    )
    default_plan: str = key(kinds.name, "standard", "Plan of a tenant that is created without one.")


@dataclass(frozen=True, slots=True)
class Mqtt:
    """The protocol, as far as it does not differ between tenants."""

    versions: tuple[str, ...] = key(
        kinds.choices("3.1", "3.1.1", "5"), ("3.1", "3.1.1", "5"), "Protocol versions that are spoken."
    )
    connect_timeout_s: float = key(
        kinds.duration(0.5, 300), 10.0, "From accept to a complete CONNECT; whoever takes longer is closed."
    )
    connect_bytes: int = key(
        kinds.size(1 << 10, 1 << 20), 128 << 10, "Largest CONNECT packet: nobody has been authenticated yet."
    )
    max_inflight: int = key(
        kinds.integer(1, 65535),
        64,
        "Unacknowledged QoS 1 and 2 messages towards a 3.x client (5.0: its Receive Maximum).",
    )
    max_keepalive_s: float = key(
        kinds.duration(1, 65535), 64800.0, "Longest Keep Alive; 5.0 clients are told, 3.x clients are held to it."
    )
    sys_interval_s: float = key(kinds.duration(1, 3600), 10.0, "How often $SYS topics are published.")


@dataclass(frozen=True, slots=True)
class Queues:
    """The virtual queues of persistent sessions. How long they may become is a quota of the plan."""

    driver: str = key(
        kinds.choice(*QUEUE_DRIVERS),
        "sqlite",
        "Where the queues are: `queues.db` in the data directory; HBase (section `hbase`): with our coprocessor, or plain, "
        "where no jar of ours may be loaded and each queue has one hub at a time that appends to it; or Redis (section `redis`), in its memory "
        "and its append-only file.",
    )
    choices: tuple[QueueChoice, ...] = key(
        kinds.queue_choices(*QUEUE_DRIVERS),
        (),
        "Other drivers for the queues of some tenants, or of sessions that expire within a time; the first table that fits counts. "
        "A queue stays where it was created.",
    )
    overflow: str = key(
        kinds.choice("reject", "drop-oldest", "drop-qos0-first"),
        "drop-qos0-first",
        "What a full queue does with the next message.",
    )
    redis_durability: str = key(
        kinds.choice("disk", "memory"),
        "disk",
        "When a message for a queue in Redis counts as stored: when it is in the append-only file and synced (a server that is set otherwise is "
        "refused), or when it is in Redis's memory: then a crash of Redis loses what was acknowledged.",
    )
    pending_bytes: int = key(
        kinds.size(1 << 20, 1 << 34), 64 << 20, "Messages on their way to disk; above it publishers are paused."
    )
    give_up_s: float = key(
        kinds.duration(1, 600),
        30.0,
        "How long a failing store is tried before a publisher gets a refusal instead of silence.",
    )
    poll_interval_s: float = key(
        kinds.duration(0.1, 60), 1.0, "How often caught-up sessions look for a missed notification."
    )


@dataclass(frozen=True, slots=True)
class Events:
    """The session-event log: what every session did, from which its state is folded."""

    driver: str = key(
        kinds.choice("sqlite", "kafka"),
        "sqlite",
        "Where the log is: `events.db` in the data directory, or topics of the Kafka cluster of section `kafka`.",
    )
    usage_interval_s: float = key(
        kinds.duration(1, 3600),
        60.0,
        "How often the usage of every tenant is written to the log; a hub that is killed loses what it has counted since.",
    )
    analytics_retention_s: float = key(
        kinds.duration(3600, 3650 * 86400),
        7 * 86400.0,
        "How long `events.db` keeps events that are only for statistics, such as usage (Kafka: `kafka.analytics_retention`).",
    )
    analytics_most: int = key(
        kinds.integer(1_000, 1_000_000_000),
        2_000_000,
        "How many of them `events.db` keeps, about 400 bytes each; a job that copies them out holds them until it has run.",
    )


@dataclass(frozen=True, slots=True)
class State:
    """The folded states of the sessions, written behind the session-event log."""

    driver: str = key(
        kinds.choice("sqlite", "hbase"),
        "sqlite",
        "Where the states are: `state.db` in the data directory, or HBase (section `hbase`).",
    )


@dataclass(frozen=True, slots=True)
class Retained:
    """Retained messages."""

    driver: str = key(
        kinds.choice("sqlite", "hbase"),
        "sqlite",
        "Where they are: `retained.db` in the data directory, or HBase (section `hbase`).",
    )


@dataclass(frozen=True, slots=True)
class Kafka:
    """The Kafka cluster, used when `events.driver` is `kafka`, and by streams. Needs the extra `kafka`: pip install 'iothub[kafka]'."""

    brokers: tuple[Endpoint, ...] = key(
        kinds.endpoints, (), "Some brokers to begin with, such as kafka-1:9092; the others are found by asking these."
    )
    topic_prefix: str = key(
        kinds.name,
        "iothub",
        "What our topics begin with: PREFIX.session-events, PREFIX.analytics-events, PREFIX.installation, PREFIX.TENANT.STREAM.",
    )
    partitions: int = key(
        kinds.integer(1, 1000),
        16,
        "Partitions of the topics that the hub makes; never changed afterwards: it decides where a session's events are.",
    )
    replication: int = key(
        kinds.integer(1, 32), 3, "Copies of every record; with 3 or more, 2 must have it before it is acknowledged."
    )
    analytics_retention_s: float = key(
        kinds.duration(3600, 3650 * 86400), 7 * 86400.0, "How long Kafka keeps events that are only for analytics."
    )
    timeout_s: float = key(
        kinds.duration(0.5, 60), 3.0, "How long a broker may take to answer before another attempt is made."
    )
    security_protocol: str = key(
        kinds.choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), "PLAINTEXT", "As the brokers' listener has it."
    )
    ca_file: Path | None = key(
        kinds.path, None, "Authorities that sign the brokers' certificates (PEM); without it those of the system."
    )
    cert_file: Path | None = key(kinds.path, None, "Certificate to show to the brokers (PEM), if they want one.")
    key_file: Path | None = key(kinds.path, None, "Its private key (PEM); readable by the hub alone.")
    sasl_mechanism: str = key(
        kinds.choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), "SCRAM-SHA-512", "How the password is proved."
    )
    sasl_username: str = key(kinds.text, "", "User name, with a SASL protocol.")
    sasl_password_file: Path | None = key(
        kinds.path, None, "File with the password, with a SASL protocol; readable by the hub alone."
    )


@dataclass(frozen=True, slots=True)
class Redis:
    """Redis, used where another setting says so. Needs the extra `redis`: pip install 'iothub[redis]'."""

    addresses: tuple[Endpoint, ...] = key(
        kinds.endpoints, (), "Servers, of which the hub uses the master; or the Sentinels, with `sentinel_name`."
    )
    sentinel_name: str = key(
        kinds.text, "", "What the Sentinels call the master; then the addresses are theirs, usually with port 26379."
    )
    database: int = key(kinds.integer(0, 65535), 0, "Number of the database.")
    username: str = key(kinds.text, "", "User name, where Redis has users (ACL).")
    password_file: Path | None = key(
        kinds.path, None, "File with the password, if Redis wants one; readable by the hub alone."
    )
    security: str = key(
        kinds.choice("plain", "tls"), "plain", "How the connection is made, as the server's port has it."
    )
    ca_file: Path | None = key(
        kinds.path, None, "Authorities that sign Redis's certificate (PEM); without it those of the system."
    )
    cert_file: Path | None = key(kinds.path, None, "Certificate to show to Redis (PEM), if it wants one.")
    key_file: Path | None = key(kinds.path, None, "Its private key (PEM); readable by the hub alone.")
    prefix: str = key(
        kinds.name,
        "iothub",
        "What our keys begin with, before the id of the installation: PREFIX:ID:...; those of queues: PREFIX:queue:...",
    )
    timeout_s: float = key(
        kinds.duration(0.05, 30),
        1.0,
        "How long Redis may be silent; then it is by-passed until it answers again. Nobody waits much longer than this.",
    )


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams to and from Kafka (section `kafka` says where that is). Which there are is with the tenants: `iothub stream`."""

    partitions: int = key(
        kinds.integer(1, 1000), 4, "Partitions of a new stream's topic: its order is kept per publisher, not beyond."
    )
    retention_s: float = key(
        kinds.duration(60, 3650 * 86400), 7 * 86400.0, "How long Kafka keeps the messages of a new stream."
    )
    pending_bytes: int = key(
        kinds.size(1 << 20, 1 << 34),
        64 << 20,
        "Messages of all tenants on their way to Kafka; above it publishers to streams are paused.",
    )
    tenant_pending_bytes: int = key(
        kinds.size(1 << 16, 1 << 32), 4 << 20, "The same of one tenant, so that none takes the room of the others."
    )


@dataclass(frozen=True, slots=True)
class QuotaLedger:
    """Where hubs count what tenants use. The limits themselves are quotas, not settings."""

    ledger: str = key(
        kinds.choice("local", "redis"),
        "local",
        '"redis": the hubs with these accounts share the limits (guide: Quotas); "local": each hub grants all.',
    )


@dataclass(frozen=True, slots=True)
class Listener:
    """What every listener has. A listener without a port is off."""

    bind: str = key(kinds.address, "127.0.0.1", 'Address to listen on; "0.0.0.0" or "::" for every interface.')
    port: int | None = key(kinds.port, None, '0 takes any free port; "off" turns the listener off.')
    max_connections: int = key(kinds.integer(1, 10_000_000), 20_000, "Connections at once; further ones are refused.")
    max_handshakes: int = key(
        kinds.integer(1, 1_000_000), 1000, "TLS and WebSocket handshakes at once; further connections are refused."
    )
    backlog: int = key(kinds.integer(1, 65535), 4096, "Connections that may wait in the kernel to be accepted.")
    accept_rate: Rate | None = key(
        kinds.rate, None, "New connections per time; the surplus waits in the kernel's queue."
    )
    proxy_trusted: tuple[Network, ...] = key(
        kinds.networks, (), "Addresses of proxies that must send a PROXY protocol header (v1 or v2); nobody else may."
    )
    allow: tuple[Network, ...] = key(kinds.networks, (), "If not empty, only these addresses may connect.")
    deny: tuple[Network, ...] = key(kinds.networks, (), "These addresses may not connect; checked before `allow`.")
    send_buffer_bytes: int = key(kinds.size(0, 1 << 30), 0, "SO_SNDBUF of each connection; 0 leaves it to the kernel.")
    receive_buffer_bytes: int = key(
        kinds.size(0, 1 << 30), 0, "SO_RCVBUF of each connection; 0 leaves it to the kernel."
    )


@dataclass(frozen=True, slots=True)
class TcpListener(Listener):
    """MQTT over TCP: the one listener that is on without any setting."""

    port: int | None = key(kinds.port, 1883, '0 takes any free port; "off" turns the listener off.')


@dataclass(frozen=True, slots=True)
class TlsListener(Listener):
    """MQTT over TLS."""

    cert_file: Path | None = key(kinds.path, None, "Certificate chain in PEM, the server's own first. Needed.")
    key_file: Path | None = key(kinds.path, None, "Private key in PEM; readable by the hub alone. Needed.")
    client_ca_file: Path | None = key(
        kinds.path, None, "If set, clients must show a certificate signed by one of these (PEM)."
    )
    min_tls: str = key(kinds.choice("1.2", "1.3"), "1.2", "Oldest TLS version that is accepted.")


@dataclass(frozen=True, slots=True)
class WsListener(Listener):
    """MQTT over WebSocket."""

    path: str = key(kinds.url_path, "/mqtt", "Path of the WebSocket; any other is answered 404.")


@dataclass(frozen=True, slots=True)
class WssListener(TlsListener):
    """MQTT over WebSocket over TLS."""

    path: str = key(kinds.url_path, "/mqtt", "Path of the WebSocket; any other is answered 404.")


@dataclass(frozen=True, slots=True)
class Listeners:
    """The four ways in."""

    tcp: TcpListener = field(default_factory=TcpListener)
    tls: TlsListener = field(default_factory=TlsListener)
    ws: WsListener = field(default_factory=WsListener)
    wss: WssListener = field(default_factory=WssListener)


@dataclass(frozen=True, slots=True)
class Auth:
    """Who a device is."""

    failure_reply_ms: int = key(
        kinds.integer(0, 10_000),
        250,
        "Every failed CONNECT is answered this long after its arrival, whatever the cause.",
    )
    hash_pool: int = key(kinds.integer(1, 64), 2, "Threads that check chosen passwords (argon2id) and tokens (JWT).")
    hash_waiting: int = key(
        kinds.integer(1, 100_000),
        256,
        "Checks of passwords and tokens that may wait for a thread; the next is refused.",
    )
    cache_s: float = key(kinds.duration(0, 3600), 60.0, "How long an answer of the account store is remembered.")
    cache_entries: int = key(kinds.integer(16, 10_000_000), 100_000, "Answers that are remembered at once (LRU).")
    shared_cache: str = key(
        kinds.choice("off", "redis"),
        "off",
        "A second level behind that: answers of the account store in Redis (section `redis`), for all hubs and for one that was just started.",
    )
    shared_cache_ttl_s: float = key(
        kinds.duration(10, 30 * 86400),
        86400.0,
        "How long they lie there; what has changed since is not used, however long. Answers that somebody is unknown: a minute.",
    )
    pepper_file: Path | None = key(
        kinds.path,
        None,
        "Key of the secrets' HMAC; without it `pepper` in the data directory. Must be readable by the hub alone. `iothub init` makes it "
        "where no accounts need it yet.",
    )
    failures: Rate | None = key(
        kinds.rate,
        Rate(10, 60.0),
        "Failed logins of one device from one address that lead to a ban; off for plan `unlimited`.",
    )
    ban_s: float = key(kinds.duration(1, 30 * 86400), 900.0, "How long such a ban lasts.")


@dataclass(frozen=True, slots=True)
class Http:
    """Health and metrics: /livez /readyz /metrics /metrics/tenants /status. They know no login, hence loopback."""

    bind: str = key(kinds.address, "127.0.0.1", "Address to listen on.")
    port: int | None = key(kinds.port, None, '0 takes any free port; without a port, or "off", there is no HTTP.')


@dataclass(frozen=True, slots=True)
class Sql:
    """Accounts: tenants, devices, rules, plans, quotas."""

    url_file: Path | None = key(kinds.path, None, "File with a SQLAlchemy URL; without it `accounts.db` (SQLite).")
    poll_interval_s: float = key(kinds.duration(0.05, 1), 0.25, "How often a hub looks for changes that others made.")
    connections: int = key(kinds.integer(2, 200), 8, "On a server: most connections of one hub or command at once.")
    connect_timeout_s: float = key(kinds.duration(1, 60), 5.0, "On a server: how long a new connection may take.")
    timeout_s: float = key(kinds.duration(1, 300), 5.0, "On a server: how long a statement, or a wait, may take.")
    recycle_s: float = key(kinds.duration(10, 86_400), 1800.0, "On a server: older connections are replaced.")


@dataclass(frozen=True, slots=True)
class HBase:
    """HBase, used when `queues.driver`, `state.driver` or `retained.driver` says so: reached through its Thrift 1 gateways, framed."""

    thrift: tuple[Endpoint, ...] = key(
        kinds.endpoints, (), "Gateways; connections are spread over them, and go to the next one when one fails."
    )
    namespace: str = key(
        kinds.identifier,
        "iothub",
        "HBase namespace of our tables; hubs that share one share sessions and queues, and must have the same accounts.",
    )
    regions: int = key(
        kinds.integer(1, 256), 128, "Regions that the tables of queues and bodies are created with; fixed from then on."
    )
    connections: int = key(kinds.integer(1, 64), 2, "Connections to each gateway; a queue always uses the same one.")
    in_flight: int = key(
        kinds.integer(1, 4096), 64, "Calls on one connection that may wait for their answers; further ones wait here."
    )
    in_flight_bytes: int = key(
        kinds.size(64 << 10, 1 << 30), 8 << 20, "Bytes of such calls; above it further ones wait here."
    )
    frame_limit: int = key(
        kinds.size(64 << 10, 1 << 30),
        16 << 20,
        "Largest call and answer; the gateway's hbase.regionserver.thrift.framed.max_frame_size_in_mb must allow as much.",
    )
    timeout_s: float = key(
        kinds.duration(0.1, 600),
        10.0,
        "How long a connection with open calls may be silent; then it is given up, and its calls are tried again.",
    )
    sweep_interval_s: float = key(
        kinds.duration(0, 365 * 86400),
        86_400.0,
        "How often one of the hubs deletes bodies that no queue refers to any more; 0s: never, but `iothub hbase sweep` does.",
    )
    admin_program: Path | None = key(
        kinds.path,
        None,
        "Program that runs a Java class with HBase's configuration, for `iothub hbase create-tables`; "
        "without it HBase's own `hbase`, looked for in PATH.",
    )


@dataclass(frozen=True, slots=True)
class Spark:
    """Spark, which jobs run on: in a process of their own, never in the hub. Needs the extra `spark`: pip install 'iothub[spark]'."""

    master: str = key(
        kinds.text, "local[*]", 'Where it runs: "local[N]" with N cores of this machine, or the URL of a cluster.'
    )
    driver_memory: int = key(
        kinds.size(512 << 20, 1 << 40), 1 << 30, "Memory of the job's Java process; Python's comes on top."
    )
    shuffle_partitions: int = key(
        kinds.integer(1, 100_000), 8, "Parts that the sessions are divided into; two or three for each core."
    )
    python: Path | None = key(
        kinds.path, None, "Python that has iothub and its extra `spark`; without it the one that runs `iothub`."
    )
    archive: Path | None = key(
        kinds.path, None, "Folder of the events as Parquet files; without it `archive` in the data directory."
    )


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of the night: `iothub job run --nightly`, which a timer starts (`iothub job schedule`)."""

    at: int | None = key(
        kinds.time_of_day,
        None,
        "When the timer starts them, in UTC; the hub itself starts nothing, but it knows what is due.",
    )
    nightly: tuple[str, ...] = key(
        kinds.choices(*NIGHTLY_JOBS),
        ("compact_events", "usage", "archive", "insights"),
        "Which, one after another; one that fails does not keep the next from running.",
    )
    max_runtime_s: float = key(
        kinds.duration(60, 7 * 86400),
        6 * 3600.0,
        "A job that takes longer is ended; what it has not finished does not count.",
    )


@dataclass(frozen=True, slots=True)
class AlarmLevels:
    """When the hub raises an alarm."""

    memory_high: int = key(kinds.percent, 70, "Share of `overload.memory_limit` in use.")
    disk_free: int = key(
        kinds.size(0, 1 << 50), 1 << 30, "Free space under the data directory below which there is an alarm."
    )
    reactor_lag_s: float = key(kinds.duration(0.01, 60), 0.25, "How late the hub's own clock tick may be.")
    cert_expiry_s: float = key(
        kinds.duration(0, 3650 * 86400), 30 * 86400.0, "How long before it ends a certificate is reported."
    )
    checkpoint_age_s: float = key(
        kinds.duration(60, 3650 * 86400),
        26 * 3600.0,
        "How long ago the last good `compact_events` may be, where it is scheduled (`jobs.at`) or was ever run.",
    )
    job_mark_age_s: float = key(
        kinds.duration(60, 3650 * 86400),
        7 * 86400.0,
        "How long ago a job that holds a log from being trimmed (`archive`, `usage`) may have run.",
    )


@dataclass(frozen=True, slots=True)
class Overload:
    """Where the hub as a whole says no."""

    memory_limit: int = key(
        kinds.size(64 << 20, 1 << 44),
        1 << 30,
        "Resident memory above which new connections are refused; the hub itself must fit.",
    )
    buffered_bytes: int = key(
        kinds.size(1 << 20, 1 << 40),
        256 << 20,
        "All out-buffers, backlogs and incomplete packets together; QoS 0 is dropped first, then publishers pause.",
    )
    connection_buffer_bytes: int = key(
        kinds.size(16 << 10, 1 << 30),
        4 << 20,
        "Out-buffer of one connection; above it QoS 0 is dropped, and a client that never reads is closed.",
    )
    session_backlog_bytes: int = key(
        kinds.size(16 << 10, 1 << 30), 1 << 20, "Messages that wait in memory for one session's window."
    )


@dataclass(frozen=True, slots=True)
class Metrics:
    """What /metrics shows."""

    tenant_series_max: int = key(
        kinds.integer(0, 10_000_000),
        20_000,
        "Series on one page of /metrics/tenants; the rest is counted and left out.",
    )


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
    retained: Retained = field(default_factory=Retained)
    kafka: Kafka = field(default_factory=Kafka)
    redis: Redis = field(default_factory=Redis)
    streams: Streams = field(default_factory=Streams)
    quota: QuotaLedger = field(default_factory=QuotaLedger)
    listeners: Listeners = field(default_factory=Listeners)
    auth: Auth = field(default_factory=Auth)
    http: Http = field(default_factory=Http)
    sql: Sql = field(default_factory=Sql)
    hbase: HBase = field(default_factory=HBase)
    spark: Spark = field(default_factory=Spark)
    jobs: Jobs = field(default_factory=Jobs)
    alarms: AlarmLevels = field(default_factory=AlarmLevels)
    overload: Overload = field(default_factory=Overload)
    metrics: Metrics = field(default_factory=Metrics)
