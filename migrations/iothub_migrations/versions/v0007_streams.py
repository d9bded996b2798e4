"""Version 7 of the accounts database: streams to and from Kafka. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import sqlalchemy as sa

from iothub_migrations.versions.v0001_accounts import counted, create, exact, foreign, moment, tenant_id

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create(
        "stream",
        counted(),
        tenant_id(),
        sa.Column("name", exact(64), nullable=False),
        sa.Column("direction", exact(8), nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("partitions", sa.Integer, nullable=False),
        moment("retention_ms"),
        moment("created_ms"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_stream_tenant_id_name"),
        foreign("stream", "tenant_id", "tenant.id"),
        counted=True,
    )
