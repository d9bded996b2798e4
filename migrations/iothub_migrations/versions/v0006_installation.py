"""Version 6 of the accounts database: an id of the installation that the accounts are of. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

from iothub_migrations.versions.v0001_accounts import create, exact

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_ID_BYTES = 16


def upgrade() -> None:
    create(
        "installation",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("id", exact(32), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_installation"),
    )
    table = sa.table("installation", sa.column("number"), sa.column("id"))
    connection = op.get_bind()
    if connection.execute(sa.select(table.c.id)).first() is None:  # a run that was killed may have been here
        connection.execute(table.insert().values(number=0, id=secrets.token_hex(_ID_BYTES)))
