"""The composition root, without a reactor that runs: everything that is declared is there."""

from __future__ import annotations

import shutil
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from twisted.internet.epollreactor import EPollReactor

from iothub.base.clock import SystemClock
from iothub.base.errors import ConflictError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Http, Listeners, TcpListener
from iothub.hub import parts
from iothub.hub.compose import compose
from iothub_services.quota.names import Quota


def test_every_declared_metric_has_a_source(initialised: Path) -> None:
    """`iothub.hub.metric_sources` names all, `iothub.hub.compose_stores` makes what they are read from."""
    reactor = EPollReactor()  # type: ignore[no-untyped-call]
    settings = Config(listeners=Listeners(tcp=TcpListener(port=0)), http=Http())
    made = compose(settings, DataDir(initialised), reactor, SystemClock())
    try:
        health = made.sockets.health
        assert made.monitoring.telemetry.registry.unfed() == []
        assert len(health.metrics().splitlines()) < 3000
        assert Quota.CONNECTIONS.value not in b"".join(health.tenant_metrics(None, "", 10)).decode()
    finally:
        made.writers.writer.close()
        made.writers.journal_thread.close()
        for store in (made.stores.states, made.stores.usage, made.stores.accounts):
            store.close()
        reactor.removeAll()
        reactor._poller.close()


def test_hub_with_other_accounts_opens_nothing(initialised: Path, tmp_path: Path) -> None:
    """The files beside them were made with others: exit code 4, and no store is made or read."""
    theirs = tmp_path / "hub"
    shutil.copytree(initialised, theirs)
    directory = DataDir(theirs)
    directory.write_installation("b" * 32)
    before = {path.name for path in theirs.iterdir()}
    reactor = EPollReactor()  # type: ignore[no-untyped-call]

    with pytest.raises(
        ConflictError, match=r"its stores belong to installation b{32}, these accounts are of installation"
    ) as caught:
        compose(Config(), directory, reactor, SystemClock())

    assert caught.value.exit_code == 4
    assert {path.name for path in theirs.iterdir()} - before <= {"accounts.db-wal", "accounts.db-shm"}
    reactor.removeAll()
    reactor._poller.close()


def test_parts_are_frozen() -> None:
    """What a part needs it has from its constructor; nothing is replaced in a running hub."""
    groups = [kind for kind in vars(parts).values() if is_dataclass(kind) and kind.__module__ == parts.__name__]

    assert parts.Parts in groups
    assert all(vars(group)["__dataclass_params__"].frozen and "__slots__" in vars(group) for group in groups)
