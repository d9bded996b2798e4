"""Version 11 of the accounts database: keys of the REST API, and who has changed what. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import sqlalchemy as sa

from iothub_migrations.versions.v0001_accounts import counted, create, exact, foreign, index, moment

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create(
        "api_key",
        counted(),
        sa.Column("name", exact(64), nullable=False),
        sa.Column("role", exact(16), nullable=False),
        sa.Column("tenant_id", sa.Integer, nullable=True),
        sa.Column("prefix", exact(16), nullable=False),
        sa.Column("credential", sa.String(512), nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        moment("created_ms"),
        moment("changed_ms"),
        sa.UniqueConstraint("name", name="uq_api_key_name"),
        sa.UniqueConstraint("prefix", name="uq_api_key_prefix"),
        foreign("api_key", "tenant_id", "tenant.id"),
        counted=True,
    )
    create(
        "audit",
        counted(),
        moment("at_ms"),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("tenant_id", sa.Integer, nullable=False),
        sa.Column("tenant", exact(32), nullable=False),
        sa.Column("kind", exact(16), nullable=False),
        sa.Column("subject", sa.String(256), nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        counted=True,
    )
    index("ix_audit_tenant_id_id", "audit", ["tenant_id", "id"])
    index("ix_audit_at_ms", "audit", ["at_ms"])
