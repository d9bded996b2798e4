"""Alembic migrations, shipped so that an installed wheel can upgrade its database."""
