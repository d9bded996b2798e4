"""Figures of several workers as those of one machine."""

from __future__ import annotations

import json
import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from iothub_services.metrics import metrics
from iothub_services.metrics.exported import Exported, exported_file, forget_exported, last_exported
from iothub_services.metrics.exposition import Registry, TenantPages, TenantSeries, process_page, render_figures
from iothub_services.metrics.merging import Distribution, Figure, Figures, Labels, figures_in, merge, rows_of, whole
from iothub_services.metrics.metrics import Kind, Merge, Metric

_WORDS = st.sampled_from(["a", "b", "c"])


def _series(metric: Metric) -> st.SearchStrategy[dict[Labels, Figure]]:
    labels = st.tuples(*[_WORDS] * len(metric.labels))
    counts = st.tuples(*[st.integers(0, 1000)] * (len(metric.buckets) + 1))
    figure: st.SearchStrategy[Figure] = st.integers(0, 1 << 60)
    if metric.kind is Kind.HISTOGRAM:
        figure = st.builds(Distribution, counts, st.integers(0, 1000).map(float))
    return st.dictionaries(labels, figure, min_size=1, max_size=3)


@st.composite
def _page(draw: st.DrawFn) -> Figures:
    chosen = draw(st.lists(st.sampled_from(metrics.DECLARED), max_size=4, unique=True))
    return {metric: draw(_series(metric)) for metric in chosen}


@given(st.lists(_page(), max_size=4), st.randoms())
def test_order_and_grouping_of_workers_do_not_matter(pages: list[Figures], order: random.Random) -> None:
    """Whichever worker asks."""
    shuffled = list(pages)
    order.shuffle(shuffled)

    assert merge(shuffled) == merge(pages)
    assert merge([merge(pages[:2]), merge(pages[2:])]) == merge(pages)


@given(_page())
def test_one_worker_is_what_it_is(page: Figures) -> None:
    assert merge([page]) == page
    assert whole(page) == page


@given(st.lists(_page(), min_size=1, max_size=4))
def test_nothing_that_is_counted_is_lost(pages: list[Figures]) -> None:
    """Counters and the counts of histograms add up to what all workers have."""

    def total(figures: Figures) -> int:
        count = 0
        for metric, series in figures.items():
            for figure in series.values() if metric.kind is not Kind.GAUGE else ():
                count += sum(figure.counts) if isinstance(figure, Distribution) else int(figure)
        return count

    assert total(merge(pages)) == sum(map(total, pages))


@given(_page())
def test_figures_travel_as_json(page: Figures) -> None:
    assert figures_in(json.loads(json.dumps(list(rows_of(page))))) == page


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=8))
def test_rows_of_another_version_are_passed_over(value: object) -> None:
    """An unknown metric, labels and figures of another form."""
    rows = [{"metric": metric, "series": value} for metric in ("iothub_later", "iothub_bans", 7)]
    rows += [{"metric": "iothub_bans", "series": [[["device"], value], [value, 1]]}, {}]

    found = figures_in(rows)

    assert found.keys() <= {metrics.BANS}
    assert all(isinstance(figure, int | float) for figure in found.get(metrics.BANS, {}).values())


def test_gauges_are_what_their_declaration_says() -> None:
    """Connections are added up; the certificate that ends first and the slowest reactor count."""
    one: Figures = {metrics.CONNECTIONS: {("tcp",): 3}, metrics.DISK_FREE: {(): 7}, metrics.REACTOR_LAG: {(): 0.1}}
    other: Figures = {metrics.CONNECTIONS: {("tcp",): 4}, metrics.DISK_FREE: {(): 9}, metrics.REACTOR_LAG: {(): 0.4}}

    merged = merge([one, other])

    assert merged[metrics.CONNECTIONS] == {("tcp",): 7}
    assert merged[metrics.DISK_FREE] == {(): 7}
    assert merged[metrics.REACTOR_LAG] == {(): 0.4}


def test_what_workers_count_alike_is_counted_once() -> None:
    """Both know the queue of tenant 1; tenant 2 is at one of them alone."""
    one: Figures = {metrics.QUEUED_MESSAGES: {("1",): 10, ("2",): 5}}
    other: Figures = {metrics.QUEUED_MESSAGES: {("1",): 11}}
    alarms: list[Figures] = [{metrics.ALARMS_ACTIVE: {("warning", "disk_low"): 1}} for _ in range(2)]

    assert whole(merge([one, other])) == {metrics.QUEUED_MESSAGES: {(): 16}}
    assert whole(merge(alarms)) == {metrics.ALARMS_ACTIVE: {("warning",): 1}}
    assert whole({metrics.QUEUED_MESSAGES: {}}) == {metrics.QUEUED_MESSAGES: {(): 0}}


def test_only_gauges_are_marked() -> None:
    """What only rises is added up."""
    assert all(metric.merge is Merge.SUM for metric in metrics.DECLARED if metric.kind is not Kind.GAUGE)


def test_registry_gives_parts_to_whoever_adds_up() -> None:
    """And its own page has the whole."""
    registry = Registry()
    registry.feed(metrics.TENANTS, lambda: 2, lambda: {"acme": 1, "other": 1})

    assert b"\niothub_tenants 2\n" in registry.render()
    assert registry.figures(is_in_parts=True) == {metrics.TENANTS: {("acme",): 1, ("other",): 1}}
    assert render_figures(whole(registry.figures(is_in_parts=True))) == render_figures(registry.figures())


def test_processes_keep_a_series_for_each_worker() -> None:
    """Under one heading for each metric, with the label `worker`."""
    rows = list(Registry().process_rows())

    page = process_page({"1": rows, "2": rows}).decode()

    assert page.count("# TYPE process_cpu_seconds_total counter") == 1
    assert page.count('process_cpu_seconds_total{worker="') == 2
    assert 'python_gc_collections_total{generation="0",worker="2"}' in page


def test_counters_of_tenants_keep_a_series_for_each_worker() -> None:
    """A worker that begins anew begins at 0, which a scraper understands where its series stand alone."""
    series: Figures = {
        metrics.TENANT_CONNECTIONS: {(): 5},
        metrics.TENANT_BYTES_SENT: {("1",): 10, ("2",): 20},
        metrics.TENANT_MESSAGES_RECEIVED: {("0", "2"): 3},
    }

    page = b"".join(TenantPages(100).render([TenantSeries("acme", series)])).decode()

    assert 'iothub_tenant_connections{tenant="acme"} 5' in page
    assert 'iothub_tenant_bytes_sent_total{tenant="acme",worker="2"} 20' in page
    assert 'iothub_tenant_messages_received_total{tenant="acme",qos="0",worker="2"} 3' in page


def test_worker_that_begins_anew_goes_on_from_what_it_has_said(tmp_path: Path) -> None:
    """Its counters and histograms never fall; what was not said counts for nobody, and a gauge is of now."""
    file = exported_file(tmp_path, 2)
    first = Exported(file)
    tick = Distribution((1, *[0] * len(metrics.REACTOR_TICK.buckets)), 0.5)
    first.export({metrics.ENGINE_TURNS: {(): 70}, metrics.TENANTS: {("a",): 1}, metrics.REACTOR_TICK: {(): tick}})

    later = Exported(file).export({metrics.ENGINE_TURNS: {(): 5}, metrics.REACTOR_TICK: {(): tick}})

    assert later == {metrics.ENGINE_TURNS: {(): 75}, metrics.REACTOR_TICK: {(): tick.plus(tick)}}
    assert last_exported(file) == later
    forget_exported(tmp_path)
    assert Exported(file).export({metrics.ENGINE_TURNS: {(): 5}}) == {metrics.ENGINE_TURNS: {(): 5}}


def test_file_of_counters_that_cannot_be_used_costs_no_scrape(tmp_path: Path) -> None:
    """One that is cut off says nothing; one that cannot be written is warned of."""
    file = exported_file(tmp_path, 1)
    file.write_text('[{"metric": "iothub_engine')
    assert last_exported(file) == {}

    assert Exported(tmp_path / "none" / "figures-1.json").export({metrics.ENGINE_TURNS: {(): 5}}) == {
        metrics.ENGINE_TURNS: {(): 5}
    }
