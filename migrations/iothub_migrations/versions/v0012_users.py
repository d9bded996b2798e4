"""Version 12 of the accounts database: users who log in, and their logins. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import sqlalchemy as sa

from iothub_migrations.versions.v0001_accounts import Big, counted, create, exact, foreign, index, moment

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create(
        "admin_user",
        counted(),
        sa.Column("name", exact(128), nullable=False),
        sa.Column("role", exact(16), nullable=False),
        sa.Column("tenant_id", sa.Integer, nullable=True),
        sa.Column("credential", sa.String(512), nullable=False),
        sa.Column("subject", exact(64), nullable=True),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        moment("created_ms"),
        moment("changed_ms"),
        moment("login_ms"),
        sa.UniqueConstraint("name", name="uq_admin_user_name"),
        sa.UniqueConstraint("subject", name="uq_admin_user_subject"),
        foreign("admin_user", "tenant_id", "tenant.id"),
        counted=True,
    )
    create(
        "login_session",
        counted(),
        sa.Column("token", exact(64), nullable=False),
        sa.Column("user_id", Big, nullable=False),
        moment("made_ms"),
        moment("seen_ms"),
        moment("ends_ms"),
        sa.UniqueConstraint("token", name="uq_login_session_token"),
        foreign("login_session", "user_id", "admin_user.id"),
        counted=True,
    )
    index("ix_login_session_user_id", "login_session", ["user_id"])
