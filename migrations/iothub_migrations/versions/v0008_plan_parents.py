"""Version 8 of the accounts database: plans inherit from plans. Never edited once released.

Plans that exist keep their limits and inherit from none: `iothub doctor` names them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from iothub_migrations.versions.v0001_accounts import exact

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column unless a run that was killed did so already (MySQL commits every statement of its own accord)."""
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("plan")}
    if "parent" not in present:
        op.add_column("plan", sa.Column("parent", exact(64), nullable=True))
