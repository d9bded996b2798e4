"""Version 10 of the accounts database: what each hub is to the others, and who says that it is gone. Never edited once released.

Gone has one form from here on: `gone_by`. What a hub of an earlier version said by `is_ended` or by having an heir is carried over.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from iothub_migrations.versions.v0001_accounts import Big, create, exact

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_NOBODY = -1


def upgrade() -> None:
    """Do what a run that was killed has not done already (MySQL commits every statement of its own accord)."""
    connection = op.get_bind()
    present = {column["name"] for column in sa.inspect(connection).get_columns("hub")}
    for column in (
        sa.Column("state", exact(16), nullable=False, server_default="up"),
        sa.Column("links", sa.Integer, nullable=False, server_default="0"),
        sa.Column("gone_by", sa.Integer, nullable=False, server_default=str(_NOBODY)),
        sa.Column("gone_why", exact(16), nullable=False, server_default=""),
    ):
        if column.name not in present:
            op.add_column("hub", column)
    if "is_ended" in present:
        hub = sa.table("hub", *(sa.column(name) for name in ("number", "is_ended", "heir", "gone_by", "gone_why")))
        connection.execute(
            hub.update().where(hub.c.is_ended == sa.true()).values(gone_by=hub.c.number, gone_why="left")
        )
        silent = (hub.c.heir != _NOBODY) & (hub.c.gone_by == _NOBODY)
        connection.execute(hub.update().where(silent).values(gone_by=hub.c.heir, gone_why="silent"))
        op.drop_column("hub", "is_ended")
    create(
        "cluster_view",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("version", Big, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_cluster_view"),
    )
    view = sa.table("cluster_view", sa.column("number"), sa.column("version"))
    if connection.execute(sa.select(view.c.version)).first() is None:
        connection.execute(view.insert().values(number=0, version=0))
