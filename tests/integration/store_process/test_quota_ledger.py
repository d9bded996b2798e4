"""The quota ledger over the store process's socket: what workers get, and what they notice when it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred

from iothub.base.clock import SystemClock
from iothub.base.errors import BackendError
from iothub.hub.quota_ledger import StoreCaller
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.embedded import KEYS, EmbeddedLedger
from iothub_services.quota.shared.lease import LapsedError, Lease
from iothub_services.store_process.ledger import PORT, RemoteLedger, ledger_port
from iothub_services.store_process.server import StoreServer
from tests.support.in_process.shared_quota import done

Begin = Callable[[], StoreServer]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sock"


@pytest.fixture
def begin(path: Path, request: pytest.FixtureRequest) -> Begin:
    """Return what begins a store process with an empty ledger."""

    def begun() -> StoreServer:
        server = StoreServer(path, {PORT: ledger_port(EmbeddedLedger(SystemClock()).run)})
        server.start()
        request.addfinalizer(server.close)
        return server

    return begun


@pytest.fixture
def lease_of(path: Path, request: pytest.FixtureRequest) -> Callable[[str], Lease]:
    """Return what makes a worker's lease, over a connection of its own."""

    def made(place: str) -> Lease:
        ledger = RemoteLedger(path)
        request.addfinalizer(ledger.close)

        def run(_name: str, call: Callable[..., Any], /, *args: Any) -> Deferred[Any]:
            return maybeDeferred(call, *args)

        caller = StoreCaller(ledger, run, SystemClock())
        return Lease(caller.call, KEYS, place, SystemClock())

    return made


def reserve(lease: Lease, limit: int, used: int) -> Any:
    name = "7:connections"
    questions = (name, limit, used, used, used)
    return done(
        lease.ask(scripts.RESERVE, [KEYS.wanted, KEYS.count(name)], scripts.WANTED_MS, scripts.KEPT_S, *questions)
    )


def test_workers_share_one_ledger(begin: Begin, lease_of: Callable[[str], Lease]) -> None:
    """What one has the other one hears of; answers have the types that Redis gives them."""
    begin()
    first, second = lease_of("1-a"), lease_of("2-b")
    for lease in (first, second):
        assert done(lease.enter()) > 0

    assert reserve(first, 100, 30)[1:] == [30, 0, 0]
    assert reserve(second, 100, 50)[1:] == [50, 30, 0]
    rate = "7:publish_messages/1"
    answer = done(
        first.ask(scripts.SHARE, [KEYS.wanted, KEYS.rate(rate)], scripts.KEPT_S, rate, 100, "5.000000", "7.500000")
    )
    assert answer[1:] == [b"7.500000"]


def test_store_process_that_began_anew_knows_nobody(begin: Begin, lease_of: Callable[[str], Lease]) -> None:
    """While it is away calls fail; after that a worker is lapsed, comes back, and declares what it has."""
    server = begin()
    lease = lease_of("1-a")
    done(lease.enter())
    assert reserve(lease, 100, 30)[1] == 30
    server.close()
    with pytest.raises(BackendError) as away:
        reserve(lease, 100, 31)
    assert away.value.retryable
    begin()

    with pytest.raises(LapsedError):
        reserve(lease, 100, 31)
    lease.lose()
    done(lease.enter())
    assert reserve(lease, 100, 31)[1] == 31


def test_call_of_another_form_closes_the_connection(path: Path, begin: Begin, lease_of: Callable[[str], Lease]) -> None:
    """And the store process serves on."""
    begin()
    ledger = RemoteLedger(path)
    with pytest.raises(BackendError):
        ledger._connection.write("run", "digest", (), (None,))
    ledger.close()

    lease = lease_of("1-a")
    assert done(lease.enter()) > 0
