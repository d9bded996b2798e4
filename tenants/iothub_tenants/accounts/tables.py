"""The SQL tables of the accounts database: tenants, devices, rules, plans, limits, bans, ids, changes, jobs, usage, keys, users, audit.

Knows no verbs and no engine: `iothub_migrations` creates these tables (a test holds both to each other), `store.py` opens them.

Theory. Every row that belongs to a tenant carries `tenant_id`, a number that is never issued twice (AUTOINCREMENT), so nothing of a
deleted tenant can reappear under its successor of the same name. Times are Unix milliseconds. Text that is compared is compared byte
by byte in every database.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=NAMING)

# SQLite counts AUTOINCREMENT only on a column that is spelled INTEGER (64 bit there anyway).
Big = BigInteger().with_variant(Integer(), "sqlite")


def exact(length: int) -> TypeEngine[str]:
    """A string type that is compared byte by byte: MySQL would take `Dev1` for `dev1`, PostgreSQL sort them as people do."""
    by_bytes = String(length).with_variant(String(length, collation="utf8mb4_bin"), "mysql", "mariadb")
    return by_bytes.with_variant(String(length, collation="C"), "postgresql")


plan = Table(
    "plan",
    metadata,
    Column("name", exact(64), primary_key=True),
    Column("weight", Integer, nullable=False),  # share in fair scheduling
    Column("created_ms", Big, nullable=False),
    Column(
        "parent", exact(64), nullable=True
    ),  # the plan that says what this one does not name; no foreign key, see `plans`
)

plan_quota = Table(
    "plan_quota",
    metadata,
    Column("plan", exact(64), ForeignKey("plan.name"), primary_key=True),
    Column("name", exact(64), primary_key=True),
    Column("value", Text, nullable=False),
)

tenant = Table(
    "tenant",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", exact(32), nullable=False, unique=True),
    Column("display_name", String(200), nullable=False),
    Column("state", exact(16), nullable=False),  # active | suspended | deleting
    Column("plan", exact(64), ForeignKey("plan.name"), nullable=False),
    Column("is_protected", Boolean, nullable=False),
    Column("client_id_policy", exact(16), nullable=False),  # owner | equal | prefix
    Column("is_closed_on_denied_publish", Boolean, nullable=False),  # 3.x connections
    Column("is_qos0_queued", Boolean, nullable=False),
    Column("allowed_networks", Text, nullable=False),  # CIDR, separated by blanks; "": every address
    Column("denied_networks", Text, nullable=False),
    Column(
        "version", Big, nullable=False
    ),  # the counter "change" when tenant, rules, groups, bans, limits or plan last changed
    Column("created_ms", Big, nullable=False),
    sqlite_autoincrement=True,
)

device = Table(
    "device",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("tenant_id", Integer, ForeignKey("tenant.id"), nullable=False),
    Column("name", exact(128), nullable=False),
    Column("credential_kind", exact(16), nullable=False),  # generated | password | x509 | jwt | none
    Column("credential", String(512), nullable=False),  # a hash, the certificate's subject, or nothing
    Column("is_enabled", Boolean, nullable=False),
    Column("created_ms", Big, nullable=False),
    Column("changed_ms", Big, nullable=False),
    UniqueConstraint("tenant_id", "name"),
    sqlite_autoincrement=True,
)

device_group = Table(
    "device_group",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("tenant_id", Integer, ForeignKey("tenant.id"), nullable=False),
    Column("name", exact(64), nullable=False),
    Column("created_ms", Big, nullable=False),
    UniqueConstraint("tenant_id", "name"),
    sqlite_autoincrement=True,
)

group_member = Table(
    "group_member",
    metadata,
    Column("device_id", Big, ForeignKey("device.id"), primary_key=True),
    Column("group_id", Big, ForeignKey("device_group.id"), primary_key=True, index=True),
)

acl_rule = Table(
    "acl_rule",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("tenant_id", Integer, ForeignKey("tenant.id"), nullable=False),
    Column("scope", exact(16), nullable=False),  # device | group | tenant
    Column("subject", exact(128), nullable=False),  # the device's or group's name; "" for the tenant
    Column("effect", exact(8), nullable=False),  # allow | deny
    Column("action", exact(16), nullable=False),  # publish | subscribe | both
    Column("filter", Text, nullable=False),
    Column("created_ms", Big, nullable=False),
    Index(None, "tenant_id", "scope", "subject"),
    sqlite_autoincrement=True,
)

quota_override = Table(
    "quota_override",
    metadata,
    Column("tenant_id", Integer, ForeignKey("tenant.id"), primary_key=True, autoincrement=False),
    Column("device", exact(128), primary_key=True),  # "" for the tenant itself
    Column("name", exact(64), primary_key=True),
    Column("value", Text, nullable=False),
)

ban = Table(
    "ban",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("tenant_id", Integer, ForeignKey("tenant.id"), nullable=False),
    Column("kind", exact(16), nullable=False),  # device | client_id | address
    Column("value", exact(256), nullable=False),
    Column("until_ms", Big, nullable=False),  # 0: until removed
    Column("reason", String(200), nullable=False),
    Column("created_ms", Big, nullable=False),
    UniqueConstraint("tenant_id", "kind", "value"),
    sqlite_autoincrement=True,
)

token_issuer = Table(
    "token_issuer",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("tenant_id", Integer, ForeignKey("tenant.id"), nullable=False),
    Column("name", exact(64), nullable=False),
    Column("algorithm", exact(16), nullable=False),  # ES256 | RS256 | EdDSA | HS256
    Column("key_set", Text, nullable=False),  # JSON: [{"kid": "", "key": a public key in PEM, or a sealed secret}]
    Column("issuer", String(512), nullable=False),  # what `iss` must be; "": anything
    Column("audience", String(512), nullable=False),  # what `aud` must name; "": nothing
    Column("leeway_ms", Big, nullable=False),
    Column("created_ms", Big, nullable=False),
    Column("changed_ms", Big, nullable=False),
    UniqueConstraint("tenant_id", "name"),
    sqlite_autoincrement=True,
)

stream = Table(
    "stream",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("tenant_id", Integer, ForeignKey("tenant.id"), nullable=False),
    Column("name", exact(64), nullable=False),
    Column("direction", exact(8), nullable=False),  # out | in
    Column("filter", Text, nullable=False),  # Topic Filter: what goes out, or may come in
    Column("partitions", Integer, nullable=False),
    Column("retention_ms", Big, nullable=False),
    Column("created_ms", Big, nullable=False),
    UniqueConstraint("tenant_id", "name"),
    sqlite_autoincrement=True,
)

# Who may use the REST API. The text of a key is shown once; `prefix` is the part of it that finds the row.
api_key = Table(
    "api_key",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("name", exact(64), nullable=False, unique=True),
    Column("role", exact(16), nullable=False),
    Column("tenant_id", Integer, ForeignKey("tenant.id"), nullable=True),  # None: it is the platform's
    Column("prefix", exact(16), nullable=False, unique=True),
    Column("credential", String(512), nullable=False),  # a hash
    Column("is_enabled", Boolean, nullable=False),
    Column("created_ms", Big, nullable=False),
    Column("changed_ms", Big, nullable=False),
    Column("used_ms", Big, nullable=False, server_default="0"),  # to the minute; 0: never
    sqlite_autoincrement=True,
)

# Who may log in to the REST API and the dashboard: with a password, or by the OpenID provider.
admin_user = Table(
    "admin_user",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("name", exact(128), nullable=False, unique=True),
    Column("role", exact(16), nullable=False),
    Column("tenant_id", Integer, ForeignKey("tenant.id"), nullable=True),  # None: of the platform
    Column("credential", String(512), nullable=False),  # a hash; "": the provider says who it is
    Column("subject", exact(64), nullable=True, unique=True),  # a hash of the provider's issuer and subject
    Column("is_enabled", Boolean, nullable=False),
    Column("created_ms", Big, nullable=False),
    Column("changed_ms", Big, nullable=False),
    Column("login_ms", Big, nullable=False),  # the last one; 0: never
    Column("used_ms", Big, nullable=False, server_default="0"),  # to the minute; 0: never
    sqlite_autoincrement=True,
)

# One row for each login that is in force. It outlives a restart of the API, and ends with its user.
login_session = Table(
    "login_session",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("token", exact(64), nullable=False, unique=True),  # a hash of what the browser has
    Column("user_id", Big, ForeignKey("admin_user.id"), nullable=False, index=True),
    Column("made_ms", Big, nullable=False),
    Column("seen_ms", Big, nullable=False),  # to the minute
    Column("ends_ms", Big, nullable=False),  # however much it is used
    sqlite_autoincrement=True,
)

# Who has changed what, written in the transaction of the change. No foreign key: it outlives the tenant.
audit = Table(
    "audit",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("at_ms", Big, nullable=False, index=True),
    Column("actor", String(128), nullable=False),  # "key:NAME", "user:NAME", "cli:USER", "hub"
    Column("tenant_id", Integer, nullable=False),  # 0: concerns the whole hub
    Column("tenant", exact(32), nullable=False),  # its name then
    Column("kind", exact(16), nullable=False),  # of ChangeKind, or what a hub did
    Column("subject", String(256), nullable=False),
    Column("before", Text, nullable=False),  # JSON; "": it was not there
    Column("after", Text, nullable=False),  # JSON; "": it is gone
    Index(None, "tenant_id", "id"),
    sqlite_autoincrement=True,
)

# One row per counter. "queue": the next queue_id that no block has taken. "change": how many writing transactions there were; its row lock puts them
# into one order, so that ids of the change log are committed in the order in which they are issued.
id_block = Table(
    "id_block",
    metadata,
    Column("name", exact(32), primary_key=True),
    Column("next", Big, nullable=False),
)

change_log = Table(
    "change_log",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("tenant_id", Integer, nullable=False),  # 0: concerns the whole hub
    Column("kind", exact(16), nullable=False),
    Column("subject", exact(256), nullable=False),
    Column("at_ms", Big, nullable=False),
    Column("tenant", exact(32), nullable=False, server_default=""),  # its name then; "": concerns the whole hub
    Column("action", exact(16), nullable=False, server_default=""),  # such as "created"; "": of an older program
    sqlite_autoincrement=True,
)

job_run = Table(
    "job_run",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("job", exact(64), nullable=False),
    Column("options", Text, nullable=False),  # JSON
    Column("is_dry_run", Boolean, nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_by", String(64), nullable=False),
    Column("heartbeat_ms", Big, nullable=False),  # of the server's clock
    Column("started_ms", Big, nullable=False),
    Column("ended_ms", Big, nullable=True),
    Column(
        "result", exact(16), nullable=False
    ),  # running | done | failed | interrupted; running without heartbeats: died
    Column("kind", exact(16), nullable=False),  # of a failure; else ""
    Column("figures", Text, nullable=False),  # JSON
    Column("text", Text, nullable=False),
    Index(None, "job", "id"),
    Index(None, "result"),
    sqlite_autoincrement=True,
)

usage_hour = Table(
    "usage_hour",
    metadata,
    Column("tenant_id", Integer, primary_key=True, autoincrement=False),
    Column("hour_ms", Big, primary_key=True, autoincrement=False),  # when the hour began
    Column("messages_in", Big, nullable=False),
    Column("messages_out", Big, nullable=False),
    Column("blocks_in", Big, nullable=False),  # message equivalents of 4 KiB
    Column("blocks_out", Big, nullable=False),
    Column("bytes_in", Big, nullable=False),
    Column("bytes_out", Big, nullable=False),
    Column("connection_ms", Big, nullable=False),
    Column("fanout", Big, nullable=False),
    Column("stored_byte_s", Big, nullable=False),  # bytes in queues and retained messages, times seconds
    Column("written_ms", Big, nullable=False),
    Index(None, "hour_ms"),
)

# One row per webhook. `tenant_id` 0: of the platform. Its secret is made of the pepper and `salt`.
webhook = Table(
    "webhook",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("tenant_id", Integer, nullable=False),
    Column("name", exact(64), nullable=False),
    Column("url", Text, nullable=False),
    Column("events", Text, nullable=False),  # words, with spaces between
    Column("is_enabled", Boolean, nullable=False),
    Column("salt", exact(32), nullable=False),
    Column("old_salt", exact(32), nullable=False),  # of the secret before; "": there was none
    Column("old_until_ms", Big, nullable=False),  # until then it signs, too
    Column("created_ms", Big, nullable=False),
    Column("changed_ms", Big, nullable=False),
    UniqueConstraint("tenant_id", "name"),
    sqlite_autoincrement=True,
)

# The last attempts of each webhook, which hubs write and trim.
webhook_attempt = Table(
    "webhook_attempt",
    metadata,
    Column("id", Big, primary_key=True, autoincrement=True),
    Column("webhook_id", Big, nullable=False),
    Column("at_ms", Big, nullable=False),
    Column("node", Integer, nullable=False),
    Column("event_id", exact(64), nullable=False),
    Column("event", exact(64), nullable=False),
    Column("result", exact(16), nullable=False),  # delivered | failed | queue_full | given_up | store_failed
    Column("status", Integer, nullable=False),  # of the HTTP response; 0: there was none
    Column("detail", String(255), nullable=False),
    Index(None, "webhook_id", "id"),
    sqlite_autoincrement=True,
)

job_mark = Table(
    "job_mark",
    metadata,
    Column("job", exact(64), primary_key=True),
    Column(
        "log", exact(32), primary_key=True
    ),  # sessions | analytics; or a name that no log has: a mark that holds nothing
    Column("part", Integer, primary_key=True, autoincrement=False),  # partition of the log
    Column("upto", Big, nullable=False),  # the last offset that the job has; what is above is not trimmed
    Column("at_ms", Big, nullable=False),
)

# One row per node number, where several hubs share stores.
hub = Table(
    "hub",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("incarnation", Big, nullable=False),  # which of this number's hubs: it rises
    Column("name", exact(64), nullable=False),
    Column("started_ms", Big, nullable=False),
    Column("beat", Big, nullable=False),  # counts up about once a second while the hub lives
    Column("heir", Integer, nullable=False),  # the number of its successor, which took over its sessions; -1: none
    Column("address", String(255), nullable=False, server_default=""),  # where other hubs connect; "": nowhere
    Column("version", String(255), nullable=False, server_default=""),  # of its program
    Column("state", exact(16), nullable=False, server_default="up"),  # joining | up | draining
    Column("links", Integer, nullable=False, server_default="0"),  # how many of its links are up
    Column(
        "gone_by", Integer, nullable=False, server_default="-1"
    ),  # the number of the hub that wrote so; -1: it lives
    Column("gone_why", exact(16), nullable=False, server_default=""),  # left | ended | silent | cut_off | evicted
)

# One row. `version` moves whenever a hub leaves `joining`, leaves, or is declared gone: who wants to change that names the version it has seen.
cluster_view = Table(
    "cluster_view",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),  # 0
    Column("version", Big, nullable=False),
)

# One row: which installation the accounts are of. Stores on servers have it, too, and are nobody else's.
installation = Table(
    "installation",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),  # 0
    Column("id", exact(32), nullable=False),  # 16 random bytes in hexadecimal digits
)

schema_info = Table(
    "schema_info",
    metadata,
    Column("name", exact(32), primary_key=True),  # version | compat_version
    Column("value", Integer, nullable=False),
)
