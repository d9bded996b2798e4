"""Version 1 of the accounts database: every table from nothing. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`: a migration is a photograph of its day; a test compares the newest one with the tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def exact(length: int) -> sa.types.TypeEngine[str]:
    by_bytes = sa.String(length).with_variant(mysql.VARCHAR(length, collation="utf8mb4_bin"), "mysql", "mariadb")
    return by_bytes.with_variant(sa.String(length, collation="C"), "postgresql")


def create(name: str, *parts: sa.schema.SchemaItem, counted: bool = False) -> None:
    """Create a table unless a run that was killed did so already (MySQL commits every statement of its own accord)."""
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *parts, sqlite_autoincrement=counted)


def index(name: str, table: str, columns: list[str]) -> None:
    present = {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table)}
    if name not in present:
        op.create_index(name, table, columns)


def counted(kind: sa.types.TypeEngine[int] | None = None) -> sa.Column[int]:
    return sa.Column("id", kind or Big, primary_key=True, autoincrement=True)


def tenant_id() -> sa.Column[int]:
    return sa.Column("tenant_id", sa.Integer, nullable=False)


def moment(name: str) -> sa.Column[int]:
    return sa.Column(name, Big, nullable=False)


def foreign(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target], name=f"fk_{table}_{column}")


def upgrade() -> None:
    create_plans()
    create_tenants()
    create_devices()
    create_rules()
    create_machinery()
    start_counters()


def create_plans() -> None:
    create(
        "plan",
        sa.Column("name", exact(64), nullable=False),
        sa.Column("weight", sa.Integer, nullable=False),
        moment("created_ms"),
        sa.PrimaryKeyConstraint("name", name="pk_plan"),
    )
    create(
        "plan_quota",
        sa.Column("plan", exact(64), nullable=False),
        sa.Column("name", exact(64), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("plan", "name", name="pk_plan_quota"),
        foreign("plan_quota", "plan", "plan.name"),
    )


def create_tenants() -> None:
    create(
        "tenant",
        counted(sa.Integer()),
        sa.Column("name", exact(32), nullable=False),
        sa.Column("display_name", sa.String(200), nullable=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("plan", exact(64), nullable=False),
        sa.Column("is_protected", sa.Boolean, nullable=False),
        sa.Column("client_id_policy", exact(16), nullable=False),
        sa.Column("is_closed_on_denied_publish", sa.Boolean, nullable=False),
        sa.Column("is_qos0_queued", sa.Boolean, nullable=False),
        sa.Column("allowed_networks", sa.Text, nullable=False),
        sa.Column("denied_networks", sa.Text, nullable=False),
        sa.Column("version", Big, nullable=False),
        moment("created_ms"),
        sa.UniqueConstraint("name", name="uq_tenant_name"),
        foreign("tenant", "plan", "plan.name"),
        counted=True,
    )


def create_devices() -> None:
    create(
        "device",
        counted(),
        tenant_id(),
        sa.Column("name", exact(128), nullable=False),
        sa.Column("credential_kind", exact(16), nullable=False),
        sa.Column("credential", sa.String(512), nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        moment("created_ms"),
        moment("changed_ms"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_device_tenant_id_name"),
        foreign("device", "tenant_id", "tenant.id"),
        counted=True,
    )
    create(
        "device_group",
        counted(),
        tenant_id(),
        sa.Column("name", exact(64), nullable=False),
        moment("created_ms"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_device_group_tenant_id_name"),
        foreign("device_group", "tenant_id", "tenant.id"),
        counted=True,
    )
    create(
        "group_member",
        sa.Column("device_id", Big, nullable=False),
        sa.Column("group_id", Big, nullable=False),
        sa.PrimaryKeyConstraint("device_id", "group_id", name="pk_group_member"),
        foreign("group_member", "device_id", "device.id"),
        foreign("group_member", "group_id", "device_group.id"),
    )
    index("ix_group_member_group_id", "group_member", ["group_id"])


def create_rules() -> None:
    create(
        "acl_rule",
        counted(),
        tenant_id(),
        sa.Column("scope", exact(16), nullable=False),
        sa.Column("subject", exact(128), nullable=False),
        sa.Column("effect", exact(8), nullable=False),
        sa.Column("action", exact(16), nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        moment("created_ms"),
        foreign("acl_rule", "tenant_id", "tenant.id"),
        counted=True,
    )
    index("ix_acl_rule_tenant_id_scope_subject", "acl_rule", ["tenant_id", "scope", "subject"])
    create(
        "quota_override",
        tenant_id(),
        sa.Column("device", exact(128), nullable=False),
        sa.Column("name", exact(64), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "device", "name", name="pk_quota_override"),
        foreign("quota_override", "tenant_id", "tenant.id"),
    )
    create(
        "ban",
        counted(),
        tenant_id(),
        sa.Column("kind", exact(16), nullable=False),
        sa.Column("value", exact(256), nullable=False),
        moment("until_ms"),
        sa.Column("reason", sa.String(200), nullable=False),
        moment("created_ms"),
        sa.UniqueConstraint("tenant_id", "kind", "value", name="uq_ban_tenant_id_kind_value"),
        foreign("ban", "tenant_id", "tenant.id"),
        counted=True,
    )


def create_machinery() -> None:
    create(
        "id_block",
        sa.Column("name", exact(32), nullable=False),
        sa.Column("next", Big, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_id_block"),
    )
    create(
        "change_log",
        counted(),
        tenant_id(),
        sa.Column("kind", exact(16), nullable=False),
        sa.Column("subject", exact(256), nullable=False),
        moment("at_ms"),
        counted=True,
    )
    create(
        "command",
        counted(),
        tenant_id(),
        sa.Column("verb", exact(64), nullable=False),
        sa.Column("argument", sa.Text, nullable=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("answer", sa.Text, nullable=True),
        moment("at_ms"),
        moment("changed_ms"),
        counted=True,
    )
    index("ix_command_state_id", "command", ["state", "id"])
    create(
        "schema_info",
        sa.Column("name", exact(32), nullable=False),
        sa.Column("value", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_schema_info"),
    )


def start_counters() -> None:
    """Counters begin at 1; queue_id 0 stays free for "no queue"."""
    table = sa.table("id_block", sa.column("name", sa.String), sa.column("next", sa.BigInteger))
    present = set(op.get_bind().execute(sa.select(table.c.name)).scalars())
    op.bulk_insert(table, [{"name": name, "next": 1} for name in ("change", "queue") if name not in present])
