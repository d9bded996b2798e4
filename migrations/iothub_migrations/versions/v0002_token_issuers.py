"""Version 2 of the accounts database: token issuers. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import sqlalchemy as sa

from iothub_migrations.versions.v0001_accounts import counted, create, exact, foreign, moment, tenant_id

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create(
        "token_issuer",
        counted(),
        tenant_id(),
        sa.Column("name", exact(64), nullable=False),
        sa.Column("algorithm", exact(16), nullable=False),
        sa.Column("key_set", sa.Text, nullable=False),
        sa.Column("issuer", sa.String(512), nullable=False),
        sa.Column("audience", sa.String(512), nullable=False),
        moment("leeway_ms"),
        moment("created_ms"),
        moment("changed_ms"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_token_issuer_tenant_id_name"),
        foreign("token_issuer", "tenant_id", "tenant.id"),
        counted=True,
    )
