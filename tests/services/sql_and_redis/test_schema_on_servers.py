"""The schema of accounts on MariaDB and PostgreSQL: two upgrades at once, an upgrade that is cut short anywhere, a commit whose answer is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, select, text

from iothub.base.errors import BackendError
from iothub_migrations import schema
from iothub_migrations.schema import SchemaState
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.database import open_engine
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore, Writer, create_schema
from iothub_tenants.accounts.tables import change_log, metadata
from ops.services.services import Services
from tests.support.servers.sql_servers import SERVERS, own_database, run

ROUNDS = 3
PEPPER = b"p" * 32
_CHANGES_TABLES = re.compile(r"\s*(CREATE|ALTER|INSERT|UPDATE|DELETE)\b")


class Killed(Exception):  # noqa: N818  what stands for a kill -9
    """The process ends here."""


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, _set: Services) -> str:
    _set.up(request.param)
    return str(request.param)


@pytest.fixture
def url(server: str, _set: Services) -> Iterator[str]:
    with own_database(_set, server) as made:
        yield made


@pytest.mark.parametrize("_round", range(ROUNDS))
def test_of_two_upgrades_at_once_one_waits(url: str, _round: int) -> None:
    """On two machines: the lock of a data directory is no obstacle."""
    start = Barrier(3)

    def upgrade() -> SchemaState:
        start.wait()
        return create_schema(url)

    with ThreadPoolExecutor(3) as threads:
        found = sorted(each.result().value for each in [threads.submit(upgrade) for _ in range(3)])

    assert found == ["current", "current", "fresh"]
    assert _is_whole(url)


def test_upgrade_that_is_cut_short_anywhere_is_completed(url: str) -> None:
    """After a few statements more each time: PostgreSQL begins anew, MariaDB keeps what was done until then."""
    engine = open_engine(url)
    begins_anew = engine.dialect.name == "postgresql"
    cuts, left = 0, [0]

    def die(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if _CHANGES_TABLES.match(statement):
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    event.listen(engine, "before_cursor_execute", die)
    while True:
        left[0] = 3 * cuts if begins_anew else cuts % 4 + 1
        try:
            schema.upgrade(engine)
            break
        except Killed:
            cuts += 1
            assert schema.check(engine) in (SchemaState.FRESH, SchemaState.OLD)
    engine.dispose()

    assert cuts > 10
    assert _is_whole(url)


def _is_whole(url: str) -> bool:
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            differences = compare_metadata(MigrationContext.configure(connection), metadata)
            counters = connection.execute(text("SELECT count(*) FROM id_block")).scalar_one()
            installations = connection.execute(text("SELECT count(*) FROM installation")).scalar_one()
        return (differences, counters, installations) == ([], 2, 1) and schema.check(engine) is SchemaState.CURRENT
    finally:
        engine.dispose()


@pytest.fixture
def store(url: str) -> Iterator[AccountStore]:
    with closing(init_store(url, pepper=PEPPER)) as opened:
        yield opened


_WHO = {"mariadb": "SELECT CONNECTION_ID()", "postgresql": "SELECT pg_backend_pid()"}
_END = {"mariadb": "KILL {}", "postgresql": "SELECT pg_terminate_backend({})"}


@pytest.fixture
def cut(request: pytest.FixtureRequest, server: str) -> Callable[[Writer], None]:
    """The server ends a writer's connection."""
    services: Services = request.getfixturevalue("_set")

    def end(writer: Writer) -> None:
        run(services, server, _END[server].format(writer.connection.execute(text(_WHO[server])).scalar_one()))

    return end


def _create_cut(store: AccountStore, cut: Callable[[Writer], None], *after: str) -> None:
    """Create a tenant, lose the connection, go on with others."""
    with store.write() as writer:
        tenants.create_closed(writer, "acme", "standard")
        cut(writer)
        for name in after:
            tenants.create_closed(writer, name, "standard")


def test_commit_whose_answer_is_lost_says_that_it_is_not_known(
    store: AccountStore, cut: Callable[[Writer], None]
) -> None:
    """Whoever repeats it at once could do it twice."""
    with pytest.raises(BackendError, match="before it confirmed the change"):
        _create_cut(store, cut)


def test_connection_that_dies_in_the_middle_leaves_nothing(store: AccountStore, cut: Callable[[Writer], None]) -> None:
    """No tenant and no line of the log."""
    watcher = ChangeWatcher(store)

    with pytest.raises(BackendError, match="does not answer"):
        _create_cut(store, cut, "beta")

    with closing(AccountStore(store.url, pepper=PEPPER)) as other:  # the gate of the first one is shut for a second
        tenants.create(other, "gamma")
        assert [each.name for each in tenants.list_all(other)] == ["gamma"]
        with other.read() as connection:
            log = connection.execute(select(change_log.c.subject).where(change_log.c.id > watcher.after))
            assert log.scalars().first() == "gamma"
