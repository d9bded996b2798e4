"""Version 3 of the accounts database: the runs of jobs. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`; the words for columns are those of version 1, which is never edited either.
"""

from __future__ import annotations

import sqlalchemy as sa

from iothub_migrations.versions.v0001_accounts import Big, counted, create, exact, index, moment

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create(
        "job_run",
        counted(),
        sa.Column("job", exact(64), nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("is_dry_run", sa.Boolean, nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_by", sa.String(64), nullable=False),
        moment("heartbeat_ms"),
        moment("started_ms"),
        sa.Column("ended_ms", Big, nullable=True),
        sa.Column("result", exact(16), nullable=False),
        sa.Column("kind", exact(16), nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        counted=True,
    )
    index("ix_job_run_job_id", "job_run", ["job", "id"])
    index("ix_job_run_result", "job_run", ["result"])
