"""Alembic's environment: runs migrations on the connection that `schema.upgrade` hands over, inside its transaction.

Knows no url and no ini file: without a connection there is nothing to run.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import MetaData

# The names of primary keys, the same in every database.
NAMING = {"pk": "pk_%(table_name)s"}

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=MetaData(naming_convention=NAMING),
    transactional_ddl=True,
)
context.run_migrations()
