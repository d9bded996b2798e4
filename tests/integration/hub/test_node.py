"""The composition root, without a reactor that runs: everything that is declared is there."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.epollreactor import EPollReactor

from iothub.datadir import DataDir
from iothub.duties import Duties
from iothub.health import NodeHealth
from iothub.node import Node
from iothub.settings import Config, Http, Listeners, TcpListener
from iothub_services.quota.names import Quota


def test_every_declared_metric_has_a_source(initialised: Path) -> None:
    reactor = EPollReactor()  # type: ignore[no-untyped-call]
    settings = Config(listeners=Listeners(tcp=TcpListener(port=0)), http=Http())
    node = Node(settings, DataDir(initialised), reactor)
    try:
        node.health = NodeHealth(node)
        node.health.feed(Duties(node))
        assert node.telemetry.registry.unfed() == []
        assert len(node.health.metrics().splitlines()) < 3000
        assert Quota.CONNECTIONS.value not in b"".join(node.health.tenant_metrics(None, "", 10)).decode()
    finally:
        node.writer.close()
        node.journal_thread.close()
        for store in (node.states, node.usage, node.accounts):
            store.close()
        reactor.removeAll()
        reactor._poller.close()
