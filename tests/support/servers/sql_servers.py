"""A database of a test's own on the real MariaDB or PostgreSQL.

Knows no table. The words are the servers' own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from ops.services.hub_settings import sql_urls
from ops.services.services import Services

SERVERS = ("mariadb", "postgresql")
# An order of words as on most servers, not that of bytes.
_MADE = {
    "mariadb": "CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "postgresql": "CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'",
}
_DROPPED = {"mariadb": "DROP DATABASE {name}", "postgresql": "DROP DATABASE {name} WITH (FORCE)"}


@contextmanager
def own_database(services: Services, server: str) -> Iterator[str]:
    """Make an empty one, give its url; it is dropped afterwards."""
    name = f"t{uuid.uuid4().hex[:12]}"
    run(services, server, _MADE[server].format(name=name))
    try:
        yield make_url(sql_urls(services.ports)[server]).set(database=name).render_as_string(hide_password=False)
    finally:
        services.up(server)
        run(services, server, _DROPPED[server].format(name=name))


def run(services: Services, server: str, *statements: str) -> None:
    """Tell a server something, each in a transaction of its own."""
    engine = create_engine(sql_urls(services.ports)[server], poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
