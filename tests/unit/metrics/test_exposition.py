"""Prometheus text: what a strict reader reads back is what was counted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from iothub_services.metrics import metrics
from iothub_services.metrics.exposition import Registry, TenantPages, TenantSample


def read(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def whole(parts: Iterator[bytes]) -> bytes:
    return b"".join(parts)


def test_counter_is_read_at_each_scrape() -> None:
    registry = Registry()
    counters = {"sent": 1}
    registry.feed(metrics.BYTES_SENT, lambda: counters["sent"])

    assert read(registry.render())["iothub_bytes_sent_total", ()] == 1
    counters["sent"] = 2**63
    assert read(registry.render())["iothub_bytes_sent_total", ()] == 2**63


def test_known_labels_begin_at_zero() -> None:
    """No missing series: a reason that has not happened yet is shown as 0."""
    registry = Registry()
    dropped = registry.tally(metrics.MESSAGES_DROPPED)
    dropped.add("queue_full", amount=3)

    page = read(registry.render())

    assert page["iothub_messages_dropped_total", (("reason", "queue_full"),)] == 3
    assert page["iothub_messages_dropped_total", (("reason", "expired"),)] == 0


def test_histogram_is_cumulative() -> None:
    registry = Registry()
    timing = registry.timing(metrics.STORE_COMMIT_DURATION, "queues")
    registry.timing(metrics.STORE_COMMIT_DURATION, "events")
    for seconds in (0.001, 0.004, 0.3, 60.0):
        timing.observe(seconds)

    page = read(registry.render())
    name, queues = "iothub_store_commit_duration_seconds", ("store", "queues")

    assert page[f"{name}_bucket", (("le", "0.001"), queues)] == 1
    assert page[f"{name}_bucket", (("le", "0.005"), queues)] == 2
    assert page[f"{name}_bucket", (("le", "5.0"), queues)] == 3
    assert page[f"{name}_bucket", (("le", "+Inf"), queues)] == 4
    assert page[f"{name}_count", (queues,)] == timing.count == 4
    assert page[f"{name}_sum", (queues,)] == pytest.approx(60.305)
    assert page[f"{name}_count", (("store", "events"),)] == 0


def test_histogram_without_labels() -> None:
    registry = Registry()
    registry.timing(metrics.REACTOR_TICK).observe(0.0015)

    page = read(registry.render())

    assert page["iothub_reactor_tick_duration_seconds_bucket", (("le", "0.002"),)] == 1
    assert page["iothub_reactor_tick_duration_seconds_count", ()] == 1


def test_process_metrics_come_along() -> None:
    assert b"process_resident_memory_bytes" in Registry().render()


def test_metric_has_one_source() -> None:
    registry = Registry()
    registry.feed(metrics.BYTES_SENT, lambda: 0)

    with pytest.raises(ValueError, match="has a source already"):
        registry.feed(metrics.BYTES_SENT, lambda: 1)
    with pytest.raises(ValueError, match="is no histogram"):
        registry.timing(metrics.BYTES_SENT)
    with pytest.raises(ValueError, match="with labels"):
        registry.timing(metrics.STORE_COMMIT_DURATION)


def test_unfed_metrics_are_known_by_name() -> None:
    registry = Registry()
    registry.feed(metrics.BYTES_SENT, lambda: 0)

    assert "iothub_bytes_received_total" in registry.unfed()
    assert "iothub_bytes_sent_total" not in registry.unfed()
    assert not [name for name in registry.unfed() if name.startswith("iothub_tenant_")]


def test_wrong_number_of_labels_is_a_defect() -> None:
    registry = Registry()
    registry.tally(metrics.QUOTA_REJECTIONS).add("connections", "extra")

    with pytest.raises(ValueError, match="expected labels"):
        registry.render()


def test_hostile_label_stays_one_line() -> None:
    registry = Registry()
    registry.tally(metrics.QUOTA_REJECTIONS).add('a"b\\c\nd')

    assert read(registry.render())["iothub_quota_rejections_total", (("quota", 'a"b\\c\nd'),)] == 1


def test_declared_names_follow_the_rules() -> None:
    """Base units in the name, `_total` on counters, unique, one sentence each."""
    names = [metric.name for metric in metrics.DECLARED]

    assert len(names) == len(set(names))
    for metric in metrics.DECLARED:
        assert re.fullmatch(r"iothub_[a-z0-9_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is metrics.Kind.COUNTER)
        assert metric.sentence.endswith(".")
        assert "tenant" not in metric.labels
        assert all(len(known) == len(metric.labels) for known in metric.known)


def sample(tenant: str, connections: int = 1) -> TenantSample:
    return TenantSample(
        tenant, {metrics.TENANT_CONNECTIONS: connections, metrics.TENANT_MESSAGES_DROPPED: {"expired": 2}}
    )


def test_tenant_page_labels_every_series() -> None:
    page = read(whole(TenantPages(100).render([sample("acme", 3), sample("zeta")])))

    assert page["iothub_tenant_connections", (("tenant", "acme"),)] == 3
    assert page["iothub_tenant_messages_dropped_total", (("reason", "expired"), ("tenant", "zeta"))] == 2


def test_tenant_page_is_capped_by_whole_tenants() -> None:
    """Half a tenant would be a wrong sum; what is left out is counted."""
    pages = TenantPages(5)

    page = read(whole(pages.render([sample(name) for name in ("a", "b", "c")])))

    assert {dict(labels)["tenant"] for _, labels in page} == {"a", "b"}
    assert pages.dropped == 2


def test_big_tenant_page_is_quick() -> None:
    """20,000 series are rendered without a thread; the bound here is only against quadratic mistakes."""
    pages = TenantPages(20_000)

    parts = list(pages.render(sample(f"tenant-{number}") for number in range(10_000)))
    page = b"".join(parts)

    assert page.count(b"\n") == 20_004
    assert len(parts) == 401  # others had their turn 400 times
