"""Version 13 of the accounts database: when a key and a user were used last. Never edited once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from iothub_migrations.versions.v0001_accounts import Big

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do what a run that was killed has not done already (MySQL commits every statement of its own accord)."""
    for table in ("api_key", "admin_user"):
        present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
        if "used_ms" not in present:
            op.add_column(table, sa.Column("used_ms", Big, nullable=False, server_default="0"))
