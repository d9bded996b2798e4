"""Version 14 of the accounts database: webhooks, and their last attempts. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import sqlalchemy as sa

from iothub_migrations.versions.v0001_accounts import Big, counted, create, exact, index, moment, tenant_id

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create(
        "webhook",
        counted(),
        tenant_id(),
        sa.Column("name", exact(64), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("salt", exact(32), nullable=False),
        sa.Column("old_salt", exact(32), nullable=False),
        moment("old_until_ms"),
        moment("created_ms"),
        moment("changed_ms"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_webhook_tenant_id_name"),
        counted=True,
    )
    create(
        "webhook_attempt",
        counted(),
        sa.Column("webhook_id", Big, nullable=False),
        moment("at_ms"),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("event_id", exact(64), nullable=False),
        sa.Column("event", exact(64), nullable=False),
        sa.Column("result", exact(16), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("detail", sa.String(255), nullable=False),
        counted=True,
    )
    index("ix_webhook_attempt_webhook_id_id", "webhook_attempt", ["webhook_id", "id"])
