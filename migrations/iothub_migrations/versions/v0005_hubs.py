"""Version 5 of the accounts database: the hubs that share stores. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import sqlalchemy as sa

from iothub_migrations.versions.v0001_accounts import Big, create, exact, moment

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create(
        "hub",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        moment("incarnation"),
        sa.Column("name", exact(64), nullable=False),
        moment("started_ms"),
        sa.Column("beat", Big, nullable=False),
        sa.Column("is_ended", sa.Boolean, nullable=False),
        sa.Column("heir", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_hub"),
    )
