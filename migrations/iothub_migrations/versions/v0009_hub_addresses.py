"""Version 9 of the accounts database: where hubs reach each other, and what runs there. Never edited once released.

Commands go over the hubs' sockets and links from here on: their table goes, with what is queued in it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do what a run that was killed has not done already (MySQL commits every statement of its own accord)."""
    found = sa.inspect(op.get_bind())
    present = {column["name"] for column in found.get_columns("hub")}
    for name in ("address", "version"):
        if name not in present:
            op.add_column("hub", sa.Column(name, sa.String(255), nullable=False, server_default=""))
    if found.has_table("command"):
        op.drop_table("command")
