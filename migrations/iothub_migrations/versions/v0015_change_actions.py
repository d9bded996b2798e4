"""Version 15 of the accounts database: what a change has done, and the tenant's name, for events. Never edited once released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from iothub_migrations.versions.v0001_accounts import exact

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do what a run that was killed has not done already (MySQL commits every statement of its own accord)."""
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("change_log")}
    for name, length in (("tenant", 32), ("action", 16)):
        if name not in present:
            op.add_column("change_log", sa.Column(name, exact(length), nullable=False, server_default=""))
