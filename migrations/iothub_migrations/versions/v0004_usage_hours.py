"""Version 4 of the accounts database: usage by hour, and marks of jobs in the logs. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import sqlalchemy as sa

from iothub_migrations.versions.v0001_accounts import create, exact, index, moment, tenant_id

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

FIGURES = (
    "messages_in",
    "messages_out",
    "blocks_in",
    "blocks_out",
    "bytes_in",
    "bytes_out",
    "connection_ms",
    "fanout",
    "stored_byte_s",
)


def upgrade() -> None:
    create(
        "usage_hour",
        tenant_id(),
        moment("hour_ms"),
        *[moment(name) for name in FIGURES],
        moment("written_ms"),
        sa.PrimaryKeyConstraint("tenant_id", "hour_ms", name="pk_usage_hour"),
    )
    index("ix_usage_hour_hour_ms", "usage_hour", ["hour_ms"])
    create(
        "job_mark",
        sa.Column("job", exact(64), nullable=False),
        sa.Column("log", exact(32), nullable=False),
        sa.Column("part", sa.Integer, nullable=False),
        moment("upto"),
        moment("at_ms"),
        sa.PrimaryKeyConstraint("job", "log", "part", name="pk_job_mark"),
    )
