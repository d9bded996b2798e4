"""The hub's own sweep of bodies in HBase: when it is time, on its thread, and ended when the hub stops."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import ParamSpec, TypeVar

import pytest
from twisted.internet.defer import Deferred

from iothub.config.sections import HBase as Settings
from iothub.hub.body_sweep import BodySweep
from iothub.testing.queue_contract import made, one
from iothub_services.hbase import from_settings
from iothub_services.hbase.caller import Caller
from iothub_services.metrics.exposition import Registry
from iothub_services.queues.hbase.bodies import LARGE_BYTES
from tests.support.hbase.hbase_queues import TABLES, HBase

P = ParamSpec("P")
T = TypeVar("T")

DAY_MS = 86_400_000


class Harness:
    """A hub's sweep on a gateway in memory, with one body that nothing refers to and that is two days old."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hbase = HBase()
        store, self.caller = self.hbase.store()
        made(store, 1)
        store.append([one(1, 1, body=b"l" * (LARGE_BYTES + 1))])
        store.purge(1)
        made(store, 2)
        store.append([one(2, 2)])
        self.hbase.gateway.now += 2 * DAY_MS

        def connect(_: Settings) -> AbstractContextManager[Caller]:
            return nullcontext(self.caller)

        monkeypatch.setattr(from_settings, "direct_caller", connect)
        self.begin()

    def begin(self) -> None:
        """Start a hub."""
        settings = replace(Settings(), namespace=TABLES.namespace)
        self.registry = Registry()
        self.sweep = BodySweep(settings, self._run, self.registry, self.hbase.clock)

    async def _run(self, _name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    def look(self) -> None:
        failures: list[object] = []
        Deferred.fromCoroutine(self.sweep.run_once()).addErrback(failures.append)
        assert failures == []

    @property
    def bodies(self) -> int:
        return len(self.hbase.gateway.tables[TABLES.bodies])


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    return Harness(monkeypatch)


def test_hub_sweeps_once_a_day(harness: Harness) -> None:
    """What gets loose meanwhile waits for the next time; the metric counts what went."""
    harness.look()
    assert harness.bodies == 0
    assert "iothub_hbase_bodies_swept_total 1" in harness.registry.render().decode()

    scans = harness.caller.made.count("scannerOpenWithScan")
    harness.hbase.gateway.now += DAY_MS - 60_000
    harness.look()
    assert harness.caller.made.count("scannerOpenWithScan") == scans
    harness.hbase.gateway.now += 60_000
    harness.look()
    assert harness.caller.made.count("scannerOpenWithScan") > scans


def test_hub_that_stops_ends_its_sweep(harness: Harness) -> None:
    """Another one may begin at once; nothing is an error."""
    harness.sweep.stop()

    harness.look()
    assert harness.bodies == 1
    harness.begin()
    harness.look()
    assert harness.bodies == 0
