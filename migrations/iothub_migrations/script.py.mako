"""${message}. Never edited once released.

Knows nothing of `iothub_tenants.accounts.tables`: a migration is a photograph of its day. Raise SCHEMA_VERSION in `schema.py` with it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
