"""The accounts on MariaDB and PostgreSQL: the contract of the port. By night every test of the accounts that works on a database runs there, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from sqlalchemy import select

from iothub.base.clock import SystemClock
from iothub.base.errors import BackendError
from iothub.testing.accounts_contract import CASES, Case
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.bounds import SqlBounds
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from ops.services.services import Services
from tests.contract.test_accounts import fill
from tests.support.servers.sql_servers import SERVERS, own_database


@pytest.fixture(scope="module", params=SERVERS)
def url(request: pytest.FixtureRequest, _set: Services) -> Iterator[str]:
    _set.up(request.param)
    with own_database(_set, request.param) as made:
        yield made


@pytest.fixture(scope="module")
def registry(url: str) -> Iterator[Registry]:
    with closing(init_store(url, pepper=b"p" * 32, clock=ManualClock())) as store:
        fill(store)
        yield Registry(store)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_accounts_contract_holds_on_a_server(case: Case, registry: Registry) -> None:
    """Every store of accounts answers as `iothub.testing.accounts_contract` says."""
    case(registry)


def test_time_of_the_server_is_known(url: str) -> None:
    """Hubs that start with different clocks ask it which one is right."""
    with closing(AccountStore(url, pepper=b"p" * 32, is_checked=False)) as store:
        wall_s = hubs.server_clock(store)

    assert wall_s is not None
    assert abs(wall_s - SystemClock.wall()) < 60


def test_process_that_is_paused_holds_up_no_writer_for_ever(url: str, registry: Registry) -> None:
    """The server takes the transaction from it, and whoever waits for the lock meanwhile waits on."""
    bounds = SqlBounds(timeout_s=1.0)
    with ExitStack() as stack:
        paused, waiting = (
            stack.enter_context(closing(AccountStore(url, pepper=b"p" * 32, bounds=bounds))) for _ in range(2)
        )
        answers: list[int] = []

        def write() -> None:
            with waiting.write() as writer:
                answers.append(writer.connection.execute(select(7)).scalar_one())

        with pytest.raises(BackendError), paused.write():
            write()

    assert answers == [7]
