"""A tenant's page of metrics: its counters go on over idle times, in which its broker is not in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.hub.monitoring.telemetry import Telemetry
from iothub.hub.monitoring.tenant_metrics import TenantMetrics
from iothub.testing.clock import ManualClock
from iothub_services.auth.port import TenantRecord
from iothub_services.metrics.alarms import Alarms
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota
from iothub_tenants.broker.sys_topics import figures
from tests.support.in_process.control_harness import EVERYTHING, Harness, device

ACME, BETA = 7, 8


class Scenario:
    """A harness with tenants `acme` and `beta`, and the pages of its metrics."""

    def __init__(self, path: Path) -> None:
        self.harness = Harness(path)
        self.harness.accounts.add(TenantRecord(BETA, "beta", rules=(EVERYTHING,)), device("dev1"))
        self.telemetry = Telemetry(Alarms(ManualClock()))
        self.telemetry.past = self.harness.past
        self.pages = self.paged(20_000)

    def paged(self, series_max: int) -> TenantMetrics:
        return TenantMetrics(
            self.harness.hub.brokers, self.telemetry, lambda _tenant_id: TenantUsage(0, 0), series_max, "7"
        )

    def use(self, tenant: str = "acme") -> None:
        """One message of 21 bytes to oneself, and one for nobody."""
        client = self.harness.join(username=f"{tenant}/dev1")
        client.subscribe(("a", 0))
        client.publish("a", b"x" * 16)
        client.take()
        client.publish("nobody", b"")
        client.disconnect()

    def page(self, tenant: str | None = None, after: str = "", limit: int = 100) -> dict[str, int]:
        text = b"".join(self.pages.render(tenant, after, limit)).decode()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {series: int(number) for series, number in lines}

    def tenants(self, after: str = "", limit: int = 100) -> set[str]:
        return {series.split('"')[1] for series in self.page(None, after, limit)}


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(tmp_path)
    yield made
    made.harness.close()


def test_counters_of_an_idle_tenant_stay_and_go_on(scenario: Scenario) -> None:
    """A counter that goes back makes silently wrong sums, one that vanishes ends a graph."""
    scenario.use()
    before = {series: number for series, number in scenario.page().items() if "_total{" in series}
    assert scenario.harness.hub.brokers.drop_idle() == 1

    away = scenario.page()
    assert {series: number for series, number in away.items() if "_total{" in series} == before
    assert away['iothub_tenant_connections{tenant="acme"}'] == away['iothub_tenant_sessions{tenant="acme"}'] == 0
    scenario.use()
    scenario.harness.hub.brokers.drop_idle()
    scenario.use()

    page = scenario.page()
    counted = [series for series, number in before.items() if number]
    assert {page[series] / before[series] for series in counted} == {3.0}
    assert page['iothub_tenant_messages_received_total{tenant="acme",qos="0"}'] == 6
    assert page['iothub_tenant_messages_delivered_total{tenant="acme",qos="0"}'] == 3
    assert page['iothub_tenant_messages_dropped_total{tenant="acme",reason="no_subscribers"}'] == 3


def test_topics_of_a_tenant_tell_the_same(scenario: Scenario) -> None:
    """`$SYS/tenant/...` and the metrics have one source."""
    scenario.use()
    scenario.harness.hub.brokers.drop_idle()
    scenario.use()

    found = dict(figures(scenario.harness.acme, TenantUsage(0, 0)))
    assert (found["messages/received"], found["messages/sent"], found["dropped/no_subscribers"]) == (4, 2, 2)
    assert found["bytes/received"] == scenario.page()['iothub_tenant_bytes_received_total{tenant="acme"}']


def test_idle_tenants_have_their_place_on_the_pages(scenario: Scenario) -> None:
    """By name, with those who are there."""
    scenario.use("acme")
    scenario.use("beta")
    scenario.harness.hub.brokers.drop_idle()
    scenario.harness.join(username="beta/dev1")

    assert scenario.tenants() == {"acme", "beta"}
    assert (scenario.tenants(limit=1), scenario.tenants(after="acme")) == ({"acme"}, {"beta"})
    assert {series.split('"')[1] for series in scenario.page("acme")} == {"acme"}


def test_idle_tenants_are_the_first_to_be_left_out(scenario: Scenario) -> None:
    """Whoever is there comes first on a page that has not room for all."""
    scenario.use("acme")
    scenario.harness.hub.brokers.drop_idle()
    scenario.harness.join(username="beta/dev1")
    scenario.pages = scenario.paged(len(scenario.page("beta")))

    assert scenario.tenants() == {"beta"}


def test_deleted_tenant_leaves_no_counters(scenario: Scenario) -> None:
    scenario.use()
    scenario.harness.hub.brokers.drop(ACME)
    scenario.telemetry.forget_tenant(ACME)

    assert scenario.page() == {}
    assert scenario.harness.acme.allowance.ledger.used(Quota.CONNECTIONS) == 0
    assert scenario.page()['iothub_tenant_bytes_received_total{tenant="acme"}'] == 0
