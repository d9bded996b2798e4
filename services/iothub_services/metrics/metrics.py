"""Every metric of the hub, declared once: name, kind, sentence, labels, and the label sets that begin at 0.

Knows no values: these come through `iothub_services.metrics.exposition.Registry`. A client id, a topic or a device
is never a label; a tenant is one only in the metrics whose name begins with `iothub_tenant_`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from iothub.base.reasons import Drop, EventLoss, Reason
from iothub.mqtt.constants import PacketType

LISTENERS = ("tcp", "tls", "ws", "wss")
PROTOCOLS = ("3.1", "3.1.1", "5")
PACKET_TYPES = tuple(packet.name.lower() for packet in PacketType)
STORES = ("queues", "retained", "events")  # those with a thread that commits in groups
SESSION_WORDS = ("created", "resumed", "taken_over", "expired", "discarded")
LOGIN_CAUSES = (
    "malformed_username",
    "unknown_tenant",
    "unknown_device",
    "device_disabled",
    "no_secret",
    "wrong_secret",
    "wrong_certificate",
    "failure_ban",
    "too_many_guesses",
    "password_pool_full",
    "tenant_suspended",
    "address_denied",
    "banned",
    "store",
    "accounts_busy",
    "accounts_changing",
    "token_too_large",
    "token_malformed",
    "token_algorithm",
    "token_unknown_key",
    "token_signature",
    "token_claims",
    "token_subject",
    "token_issuer",
    "token_audience",
    "token_expired",
    "token_not_yet_valid",
)
WEBHOOK_RESULTS = ("delivered", "failed", "queue_full", "given_up", "store_failed", "deleted")
ACCEPT_REASONS = (Reason.ADDRESS_DENIED, Reason.OVERLOAD, Reason.FILE_DESCRIPTORS)
_QOS = (("0",), ("1",), ("2",))
_DROPS = tuple((drop.value,) for drop in Drop)
_REASONS = tuple((word,) for word in dict.fromkeys(reason.word for reason in Reason))
_LISTENERS = tuple((listener,) for listener in LISTENERS)
_ACTIONS = (("publish",), ("subscribe",))
_DIRECTIONS = (("out",), ("in",))
_RESULTS = (("accepted",), ("refused",))
_TICKS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LATENCIES_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Merge(Enum):
    """What several workers of one machine say together, where it is one metric of the machine."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


class Kind(Enum):
    """What a scraper may do with the numbers."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)  # declared once, so it is only ever equal to itself
class Metric:
    """One declared metric. `known`: label sets that are shown as 0 before anything has happened. `merge`: of its series at several workers."""

    name: str
    kind: Kind
    sentence: str
    labels: tuple[str, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()
    buckets: tuple[float, ...] = ()
    merge: Merge = Merge.SUM


def _counter(name: str, sentence: str, labels: tuple[str, ...] = (), known: tuple[tuple[str, ...], ...] = ()) -> Metric:
    return Metric(name, Kind.COUNTER, sentence, labels, known)


def _gauge(
    name: str,
    sentence: str,
    labels: tuple[str, ...] = (),
    known: tuple[tuple[str, ...], ...] = (),
    *,
    merge: Merge = Merge.SUM,
) -> Metric:
    return Metric(name, Kind.GAUGE, sentence, labels, known, merge=merge)


def _histogram(name: str, sentence: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, Kind.HISTOGRAM, sentence, labels, buckets=buckets)


# Build and process
BUILD_INFO = _gauge(
    "iothub_build_info",
    "Always 1; the labels describe the running program.",
    ("version", "python", "twin"),
    merge=Merge.MAX,
)
START_TIME = _gauge("iothub_start_time_seconds", "Start time of the hub (Unix time).", merge=Merge.MIN)
DRAINING = _gauge(
    "iothub_draining",
    "1: the hub is draining: it lets no client in, and asks those that are connected to go.",
    merge=Merge.MAX,
)

# Reactor
REACTOR_TICK = _histogram(
    "iothub_reactor_tick_duration_seconds",
    "Delay of the reactor, sampled ten times a second.",
    _TICKS_S,
)
REACTOR_LAG = _gauge("iothub_reactor_lag_seconds", "Delay of the reactor at the last sample.", merge=Merge.MAX)
ENGINE_TURNS = _counter("iothub_engine_turns_total", "Iterations of the message plane.")
LAST_RELOAD_GOOD = _gauge(
    "iothub_config_last_reload_successful",
    "1: the last reload succeeded; 0: the configuration was refused, and nothing was changed.",
    merge=Merge.MIN,
)
LAST_RELOAD = _gauge(
    "iothub_config_last_reload_success_timestamp_seconds",
    "Time of the last successful reload (Unix time); before the first one: of the start.",
    merge=Merge.MIN,
)
ENGINE_EVENTS = _counter("iothub_engine_events_total", "Readable and writable sockets handled by turns.")

# Connections
CONNECTIONS = _gauge("iothub_connections", "Open connections.", ("listener",), _LISTENERS)
CONNECTIONS_LIMIT = _gauge(
    "iothub_connections_limit",
    "Maximum number of open connections: max_connections, or less if file descriptors allow less.",
    ("listener",),
)
CONNECTIONS_PRE_AUTH = _gauge("iothub_connections_pre_auth", "Open connections that are not authenticated yet.")
CONNECTS = _counter(
    "iothub_connects_total",
    "CONNECT packets by protocol version and result.",
    ("protocol", "result"),
    tuple((protocol, result) for protocol in PROTOCOLS for (result,) in _RESULTS),
)
DISCONNECTS = _counter("iothub_disconnects_total", "Closed connections by reason.", ("reason",), _REASONS)
ACCEPTS_REFUSED = _counter(
    "iothub_accepts_refused_total",
    "Connections closed before their first byte was read, by reason.",
    ("listener", "reason"),
    tuple((listener, reason.word) for listener in LISTENERS for reason in ACCEPT_REASONS),
)
FILE_DESCRIPTORS = _gauge("iothub_file_descriptors", "Open file descriptors of the hub, as of the last count.")
FILE_DESCRIPTORS_LIMIT = _gauge("iothub_file_descriptors_limit", "Maximum number of open file descriptors.")

# Authentication and authorisation
AUTHENTICATIONS = _counter(
    "iothub_authentications_total",
    "Authentication attempts by result.",
    ("result",),
    tuple((word,) for word in ("accepted", *LOGIN_CAUSES)),
)
AUTHORIZATIONS_DENIED = _counter(
    "iothub_authorizations_denied_total", "Requests denied by access rules.", ("action",), _ACTIONS
)
AUTH_CACHE = _counter(
    "iothub_authz_cache_requests_total",
    "Lookups of accounts and rules in the hub's cache.",
    ("result",),
    (("hit",), ("miss",)),
)
BANS = _gauge(
    "iothub_bans",
    "Bans in force by kind; failures: bans after failed logins.",
    ("kind",),
    tuple((word,) for word in ("device", "client_id", "address", "failures")),
    merge=Merge.MAX,
)
HOOK_FAILURES = _counter("iothub_hook_failures_total", "Failed calls of plug-ins.")

# Packets
PACKETS_RECEIVED = _counter(
    "iothub_packets_received_total", "Control Packets received.", ("type",), tuple((name,) for name in PACKET_TYPES)
)
PACKETS_SENT = _counter(
    "iothub_packets_sent_total", "Control Packets sent.", ("type",), tuple((name,) for name in PACKET_TYPES)
)
BYTES_RECEIVED = _counter("iothub_bytes_received_total", "MQTT bytes received, without framing and encryption.")
BYTES_SENT = _counter("iothub_bytes_sent_total", "MQTT bytes sent, without framing and encryption.")
MALFORMED_PACKETS = _counter("iothub_malformed_packets_total", "Malformed packets received.")
PROTOCOL_ERRORS = _counter("iothub_protocol_errors_total", "Packets refused as Protocol Errors.")

# Messages
MESSAGES_RECEIVED = _counter("iothub_messages_received_total", "PUBLISH packets accepted.", ("qos",), _QOS)
MESSAGES_DELIVERED = _counter("iothub_messages_delivered_total", "PUBLISH packets sent.", ("qos",), _QOS)
MESSAGES_DROPPED = _counter(
    "iothub_messages_dropped_total", "Dropped messages and deliveries by reason.", ("reason",), _DROPS
)

# Sessions
SESSIONS = _gauge("iothub_sessions", "Sessions by state.", ("state",), (("connected",), ("offline",)), merge=Merge.MAX)
SESSION_EVENTS = _counter(
    "iothub_session_events_total",
    "Changes of persistent sessions by kind.",
    ("event",),
    tuple((word,) for word in SESSION_WORDS),
)
SESSION_EVENTS_LOST = _counter(
    "iothub_session_events_lost_total", "Session events that are not in the log, because it was too far behind."
)
DAMAGED_RECORDS = _counter(
    "iothub_damaged_records_total",
    "Damaged records that this hub found: session events, session states, retained messages, messages of queues.",
    ("store",),
    (("events",), ("state",), ("retained",), ("queues",)),
)
ANALYTICS_EVENTS = _counter(
    "iothub_analytics_events_total", "Events for statistics (usage, samples, drops, refusals) written to the log."
)
ANALYTICS_EVENTS_LOST = _counter(
    "iothub_analytics_events_lost_total", "Events for statistics that are not in the log; usage is never lost this way."
)
QUEUED_MESSAGES = _gauge("iothub_queued_messages", "Messages in virtual queues.", merge=Merge.MAX)
QUEUED_BYTES = _gauge("iothub_queued_bytes", "Bytes in virtual queues.", merge=Merge.MAX)
BUFFERED_BYTES = _gauge("iothub_buffered_bytes", "Bytes in out-buffers, backlogs and incomplete packets.")

# Stores
STORE_COMMITS = _counter("iothub_store_commits_total", "Group commits, each with one sync.", ("store",))
STORE_COMMIT_DURATION = _histogram(
    "iothub_store_commit_duration_seconds", "Duration of one group commit.", _LATENCIES_S, ("store",)
)
JOURNAL_BYTES = _gauge(
    "iothub_journal_bytes",
    "Bytes of the segments of the queues' journal on the disk; 0: there is none.",
    merge=Merge.MAX,
)
JOURNAL_MESSAGES = _gauge(
    "iothub_journal_messages", "Messages in queues that are in the journal and not yet in queues.db.", merge=Merge.MAX
)
JOURNAL_CHECKPOINT = _gauge(
    "iothub_journal_last_checkpoint_duration_seconds",
    "Duration of the last change of the journal's segment, with what was moved to queues.db for it; publishers of stored messages waited for it.",
    merge=Merge.MAX,
)
STORE_PENDING_BYTES = _gauge("iothub_store_pending_bytes", "Bytes of messages that wait to be stored.")
REPEATABLE_DELIVERIES = _counter(
    "iothub_repeatable_deliveries_total",
    "QoS 2 deliveries of streams and Wills to queues; queues on HBase and Redis keep the message id of each for 24 hours.",
)

# HBase, where a store is on it
HBASE_REQUESTS = _counter(
    "iothub_hbase_requests_total",
    "Calls to HBase by result: answered (also with an error), lost with their connection, or timed out.",
    ("op", "result"),
)
HBASE_REQUEST_DURATION = _histogram(
    "iothub_hbase_request_duration_seconds", "Time from sending a call to its result.", _LATENCIES_S, ("op",)
)
HBASE_CONNECTIONS = _gauge(
    "iothub_hbase_connections", "Connections to the gateways by state.", ("state",), (("up",), ("down",))
)
HBASE_GATEWAY_UP = _gauge(
    "iothub_hbase_gateway_up", "1: the gateway answers this hub; 0: it does not.", ("gateway",), merge=Merge.MIN
)
HBASE_IN_FLIGHT = _gauge("iothub_hbase_in_flight", "Calls without an answer yet.")
HBASE_BODIES_SWEPT = _counter("iothub_hbase_bodies_swept_total", "Unreferenced message bodies deleted by this hub.")

# Redis, where something is on it
REDIS_CALLS = _counter(
    "iothub_redis_calls_total",
    "Calls to Redis by result: answered, refused, lost (connection or timeout), or bypassed while Redis does not answer.",
    ("result",),
    (("answered",), ("refused",), ("lost",), ("bypassed",)),
)
REDIS_PIPELINES = _counter("iothub_redis_pipelines_total", "Pipelines sent to Redis; each carries several calls.")
REDIS_PIPELINE_DURATION = _histogram(
    "iothub_redis_pipeline_duration_seconds",
    "Time from handing a pipeline to its thread to its last answer.",
    _LATENCIES_S,
)
REDIS_RECORDS = _counter(
    "iothub_redis_records_total",
    "Lookups of tenants and devices in Redis by result; stale: outdated; forged: not written by a hub; failed: no answer. All but hit go on to SQL.",
    ("result",),
    (("hit",), ("miss",), ("stale",), ("forged",), ("failed",)),
)
REDIS_UP = _gauge("iothub_redis_up", "1: Redis answers; 0: the hub works without it until it does.", merge=Merge.MIN)
QUOTA_LEDGER_UP = _gauge(
    "iothub_quota_ledger_up",
    "1: limits hold over all hubs; 0: the ledger is unavailable, and every hub keeps its last share.",
    merge=Merge.MIN,
)
QUOTA_LEDGER_HUBS = _gauge(
    "iothub_quota_ledger_hubs", "Hubs with a lease in the quota ledger, including this one.", merge=Merge.MAX
)
QUOTA_LEDGER_ASKED = _counter(
    "iothub_quota_ledger_questions_total", "Counts requested from or reported to the quota ledger."
)
QUOTA_LEDGER_RETURNS = _counter(
    "iothub_quota_ledger_returns_total",
    "Times this hub registered again at the quota ledger and reported its usage.",
)
REDIS_WAITING = _gauge("iothub_redis_waiting_calls", "Calls without an answer yet.")

# Routing
SUBSCRIPTIONS = _gauge(
    "iothub_subscriptions", "Subscriptions by kind.", ("kind",), (("plain",), ("shared",)), merge=Merge.MAX
)
RETAINED_MESSAGES = _gauge("iothub_retained_messages", "Retained messages.", merge=Merge.MAX)
RETAINED_BYTES = _gauge("iothub_retained_bytes", "Bytes of retained messages.", merge=Merge.MAX)

# Quotas and overload
QUOTA_REJECTIONS = _counter("iothub_quota_rejections_total", "Requests rejected by quotas.", ("quota",))
OVERLOAD_LEVEL = _gauge(
    "iothub_overload_level",
    "0: none; 1: QoS 0 is dropped; 2: publishers are paused; 3: new connections are refused.",
    merge=Merge.MAX,
)
TRACES_ACTIVE = _gauge("iothub_traces_active", "Traces of clients and topics that run now.", merge=Merge.MAX)

# Events for tenants
TENANT_EVENTS = _counter("iothub_published_events_total", "Events published below $events.")
TENANT_EVENTS_LEFT_OUT = _counter(
    "iothub_left_out_events_total",
    "Events for tenants that were left out, by reason; the tenant gets their number.",
    ("reason",),
    tuple((loss.value,) for loss in EventLoss),
)

WEBHOOK_EVENTS = _counter(
    "iothub_webhook_events_total",
    "Events for webhooks by result; failed: an attempt, after which others follow.",
    ("result",),
    tuple((result,) for result in WEBHOOK_RESULTS),
)
WEBHOOK_WAITING_BYTES = _gauge("iothub_webhook_waiting_bytes", "Bytes of events that wait to be delivered to webhooks.")

# The REST API beside the hub
API_RESTARTS = _counter(
    "iothub_api_restarts_total",
    "Times that the hub has started the process of its REST API again, by reason; silent: it did not answer.",
    ("reason",),
    (("ended",), ("silent",)),
)

# Streams to and from Kafka
STREAM_MESSAGES = _counter(
    "iothub_stream_messages_total",
    "Stream messages by direction: out: acknowledged by Kafka; in: read from Kafka.",
    ("direction",),
    _DIRECTIONS,
)
STREAM_BYTES = _counter("iothub_stream_bytes_total", "Bytes of these stream messages.", ("direction",), _DIRECTIONS)
STREAM_REFUSED = _counter(
    "iothub_stream_refused_total",
    "out: messages that Kafka cannot accept; in: records moved to the topic for refused records.",
    ("direction",),
    _DIRECTIONS,
)
STREAM_GIVEN_UP = _counter(
    "iothub_stream_given_up_total", "Messages that Kafka did not accept in time; their publishers got an error."
)
STREAM_PENDING = _gauge("iothub_stream_pending_bytes", "Bytes of messages that wait for Kafka.")
STREAMS = _gauge("iothub_streams", "Streams of active tenants.", ("direction",), _DIRECTIONS, merge=Merge.MAX)

# Jobs, wherever they run; a job that never ran has no series
JOB_LAST_SUCCESS = _gauge(
    "iothub_job_last_success_timestamp_seconds",
    "Time of the job's last successful run (Unix time).",
    ("job",),
    merge=Merge.MAX,
)
JOB_DURATION = _gauge("iothub_job_duration_seconds", "Duration of the job's last run.", ("job",), merge=Merge.MAX)
JOB_LAST_RESULT = _gauge(
    "iothub_job_last_result", "1: the job's last run succeeded; 0: it failed.", ("job",), merge=Merge.MAX
)
JOB_RUNNING = _gauge(
    "iothub_job_running", "1: the job is running; a killed run still counts for a minute.", ("job",), merge=Merge.MAX
)

# Operations
ALARMS_ACTIVE = _gauge(
    "iothub_alarms_active", "Active alarms by severity.", ("severity",), (("warning",), ("critical",)), merge=Merge.MAX
)
CERTIFICATE_EXPIRY = _gauge(
    "iothub_certificate_expiry_timestamp_seconds",
    "Expiry time of the listener's certificate (Unix time).",
    ("listener",),
    merge=Merge.MIN,
)
DISK_FREE = _gauge("iothub_disk_free_bytes", "Free space under the data directory.", merge=Merge.MIN)
HTTP_REQUESTS = _counter("iothub_http_requests_total", "HTTP requests for health and metrics.", ("route", "status"))
LOG_SUPPRESSED = _counter("iothub_log_messages_suppressed_total", "Log lines suppressed by the rate limit.")
TENANTS = _gauge("iothub_tenants", "Tenants with a broker in memory.", merge=Merge.MAX)
SERIES_DROPPED = _counter(
    "iothub_metrics_series_dropped_total", "Series omitted from /metrics/tenants because of metrics.tenant_series_max."
)

# Per tenant; the label `tenant` comes first
TENANT_CONNECTIONS = _gauge("iothub_tenant_connections", "Open connections.")
TENANT_SESSIONS = _gauge("iothub_tenant_sessions", "Sessions, connected or not.")
TENANT_SUBSCRIPTIONS = _gauge("iothub_tenant_subscriptions", "Subscriptions.")
TENANT_MESSAGES_RECEIVED = _counter(
    "iothub_tenant_messages_received_total", "PUBLISH packets accepted.", ("qos",), _QOS
)
TENANT_MESSAGES_DELIVERED = _counter("iothub_tenant_messages_delivered_total", "PUBLISH packets sent.", ("qos",), _QOS)
TENANT_MESSAGES_DROPPED = _counter(
    "iothub_tenant_messages_dropped_total", "Dropped messages and deliveries by reason.", ("reason",)
)
TENANT_BYTES_RECEIVED = _counter("iothub_tenant_bytes_received_total", "MQTT bytes received.")
TENANT_BYTES_SENT = _counter("iothub_tenant_bytes_sent_total", "MQTT bytes sent.")
TENANT_AUTHENTICATIONS = _counter(
    "iothub_tenant_authentications_total", "Authentication attempts by result.", ("result",), _RESULTS
)
TENANT_DENIED = _counter("iothub_tenant_authorizations_denied_total", "Requests denied by access rules.", ("action",))
TENANT_QUEUED_BYTES = _gauge("iothub_tenant_queued_bytes", "Bytes in virtual queues.", merge=Merge.MAX)
TENANT_QUEUED_MESSAGES = _gauge("iothub_tenant_queued_messages", "Messages in virtual queues.", merge=Merge.MAX)
TENANT_RETAINED_MESSAGES = _gauge("iothub_tenant_retained_messages", "Retained messages.", merge=Merge.MAX)
TENANT_RETAINED_BYTES = _gauge("iothub_tenant_retained_bytes", "Bytes of retained messages.", merge=Merge.MAX)
TENANT_QUOTA_LIMIT = _gauge("iothub_tenant_quota_limit", "Limit in force.", ("quota",), merge=Merge.MAX)
TENANT_QUOTA_USED = _gauge("iothub_tenant_quota_used", "Usage of a counted limit.", ("quota",), merge=Merge.MAX)
TENANT_QUOTA_REJECTIONS = _counter("iothub_tenant_quota_rejections_total", "Requests rejected by quotas.", ("quota",))
TENANT_QUOTA_TRIALS = _counter(
    "iothub_tenant_quota_trials_total", "Requests that dry-run limits would have rejected or delayed.", ("quota",)
)

# Where several workers serve one data directory
WORKERS = _gauge(
    "iothub_workers",
    "Workers of this data directory by state; silent: it did not answer this scrape, and what it has is missing.",
    ("state",),
    (("up",), ("silent",)),
)

# Links to other hubs; the label `peer` is the node number
CLUSTER_PEERS = _gauge("iothub_cluster_peers", "Other hubs whose link is up.", merge=Merge.MIN)
CLUSTER_MEMBERS = _gauge(
    "iothub_cluster_members",
    "Hubs by state, this one among them, as one hub sees them: joining, up, draining, down (not linked), refused, gone, left.",
    ("state",),
    (("joining",), ("up",), ("draining",), ("down",), ("refused",), ("gone",), ("left",)),
    merge=Merge.MAX,
)
CLOCK_OFFSET = _gauge(
    "iothub_cluster_clock_offset_seconds",
    "How far this machine's clock is ahead of the linked hubs' (less than 0: behind).",
    merge=Merge.MAX,
)
CLUSTER_EVENTS = _counter(
    "iothub_cluster_events_total",
    "Changes of other hubs: peer_up, peer_unreachable, peer_expelled, peer_down; cluster_view: others serve clients.",
    ("event",),
)
CLIENTS_GIVEN_UP = _counter(
    "iothub_cluster_clients_given_up_total",
    "Clients closed because they connect to another hub: their end is logged, is not logged yet, or met a defect.",
    ("result",),
)
AWAITING_PEERS = _gauge(
    "iothub_subscribes_awaiting_hubs",
    "SUBSCRIBE and UNSUBSCRIBE packets that are answered when every other hub knows of them.",
)
WILLS_OVERTAKEN = _counter(
    "iothub_wills_overtaken_total",
    "Clients that connected before the Will of their last connection was stored: if the hub is lost before it is, the Will is.",
)
WILLS_GIVEN_UP = _counter(
    "iothub_cluster_wills_given_up_total",
    "Wills of lost hubs' clients that were not published: the accounts could not be read for ten minutes.",
)
LINK_BYTES = _counter("iothub_link_bytes_total", "Bytes on the link to a hub.", ("peer", "direction"))
LINK_UNACKNOWLEDGED = _gauge(
    "iothub_link_unacknowledged_bytes", "Bytes for a hub that it has not acknowledged.", ("peer",)
)
LINK_RECONNECTS = _counter("iothub_link_reconnects_total", "How often the link to a hub came up again.", ("peer",))
LINK_ROUND_TRIP = _gauge(
    "iothub_link_round_trip_seconds",
    "Time from a ping to its echo at the hub, as of the last one.",
    ("peer",),
    merge=Merge.MAX,
)

DECLARED: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
NOT_ALWAYS_FED = (
    "iothub_tenant_",
    "iothub_hbase_",
    "iothub_redis_",
    "iothub_quota_ledger_",
    "iothub_cluster_",
    "iothub_link_",
    "iothub_workers",
)
"""Prefixes of metrics that have their own page or exist only with a back end."""
