"""Counters, and their Prometheus text: read at each scrape, never pushed.

Knows no HTTP and no engine: sources are functions that return plain numbers. Everything here runs on the reactor thread; a page
of 20,000 series is made in slices of a few milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as Family

from iothub_services.metrics import metrics
from iothub_services.metrics.merging import Distribution, Figure, Figures, Labels, Number, Row, Series
from iothub_services.metrics.metrics import Kind, Metric

Values: TypeAlias = "Number | Mapping[str, Number] | Mapping[Labels, Figure]"
Source: TypeAlias = Callable[[], Values]

_SLICE = 25  # tenants
_WORKER = "worker"  # the label of what is not added up over workers
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Tally:
    """A counter with labels for code that is not the engine. Label values come from the program, never from clients."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], Number] = {}

    def add(self, *labels: str, amount: Number = 1) -> None:
        self._counts[labels] = self._counts.get(labels, 0) + amount

    def __call__(self) -> Mapping[tuple[str, ...], Number]:
        return self._counts


class Timing:
    """One histogram of seconds. May be observed in any one thread."""

    __slots__ = ("buckets", "counts", "total")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.buckets, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)


class Registry:
    """Which source feeds which declared metric; renders the platform page. Invariant: one source per metric."""

    def __init__(self) -> None:
        self._sources: dict[Metric, Source] = {}
        self._parts: dict[Metric, Source] = {}
        self._timings: dict[Metric, dict[tuple[str, ...], Timing]] = {}
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    def feed(self, metric: Metric, source: Source, parts: Source | None = None) -> None:
        """Read `metric` from `source` at each scrape: a number, or numbers by label value (several labels: by tuple).

        `parts`: the same in parts, for `iothub_services.metrics.merging`; the part's name is one label more.
        """
        if metric in self._sources or metric in self._timings or metric.kind is Kind.HISTOGRAM:
            raise ValueError(f"{metric.name} has a source already, or is a histogram")
        self._sources[metric] = source
        if parts is not None:
            self._parts[metric] = parts

    def tally(self, metric: Metric) -> Tally:
        """Feed `metric` from a new Tally."""
        tally = Tally()
        self.feed(metric, tally)
        return tally

    def timing(self, metric: Metric, *labels: str) -> Timing:
        """Feed a histogram, or its series with these label values, from a new Timing."""
        series = self._timings.get(metric, {})
        if metric.kind is not Kind.HISTOGRAM or labels in series or len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name} is no histogram with labels {metric.labels}, or has a source already")
        series[labels] = Timing(metric.buckets)
        self._timings[metric] = series
        return series[labels]

    def unfed(self) -> list[str]:
        """Names of declared platform metrics that every hub has and no source feeds; a test keeps this list empty."""
        fed = self._sources.keys() | self._timings.keys()
        return [
            metric.name
            for metric in metrics.DECLARED
            if metric not in fed and not metric.name.startswith(metrics.NOT_ALWAYS_FED)
        ]

    def figures(self, *, is_in_parts: bool = False) -> dict[Metric, Series]:
        """Read every source. `is_in_parts`: those in parts that have them."""
        found: dict[Metric, Series] = {}
        for metric in metrics.DECLARED:
            if metric in self._sources:
                source = self._parts.get(metric, self._sources[metric]) if is_in_parts else self._sources[metric]
                found[metric] = _by_labels(source())
            elif metric in self._timings:
                timings = self._timings[metric].items()
                found[metric] = {labels: Distribution(tuple(each.counts), each.total) for labels, each in timings}
        return found

    def process_rows(self) -> Iterator[Row]:
        """Yield the figures of the process and of its garbage collector as JSON, for `process_page`."""
        for family in self._process.collect():
            samples = [[sample.name, dict(sample.labels), sample.value] for sample in family.samples]
            yield {"family": family.name, "sentence": family.documentation, "kind": family.type, "samples": samples}

    def render(self) -> bytes:
        """Return the page of `/metrics`."""
        return render_figures(self.figures()) + generate_latest(self._process)


def render_figures(figures: Figures) -> bytes:
    """Return the part of the page of `/metrics` that is declared here."""
    lines: list[str] = []
    for metric in metrics.DECLARED:
        if metric in figures:
            lines.extend(_head(metric))
            for labels, figure in _with_known(metric, figures[metric]).items():
                lines.extend(_lines(metric, labels, figure))
    lines.append("")
    return "\n".join(lines).encode()


class _Families:
    """What `generate_latest` takes for a registry."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def add(self, row: Row, worker: str) -> None:
        name = str(row["family"])
        family = self._families.setdefault(name, Family(name, str(row["sentence"]), str(row["kind"])))
        samples = row["samples"]
        for sample, labels, value in samples if isinstance(samples, list) else ():
            family.add_sample(sample, {**labels, _WORKER: worker}, value)

    def collect(self) -> Iterable[Family]:
        return self._families.values()


def process_page(rows: Mapping[str, Iterable[Row]]) -> bytes:
    """Return the part of the page of `/metrics` that is of processes, from the rows of each worker."""
    families = _Families()
    for worker, of_worker in rows.items():
        for row in of_worker:
            families.add(row, worker)
    return generate_latest(families)


@dataclass(frozen=True, slots=True)
class TenantSample:
    """The numbers of one tenant at one moment."""

    tenant: str
    values: Mapping[Metric, Values]

    @property
    def series(self) -> Figures:
        return {metric: _with_known(metric, _by_labels(values)) for metric, values in self.values.items()}


@dataclass(frozen=True, slots=True)
class TenantSeries:
    """The same of several workers: counters have the label of their worker besides, as the last one."""

    tenant: str
    series: Figures


class TenantPages:
    """Renders `/metrics/tenants`, at most `series_max` series on a page; counts what was left out."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self.dropped = 0

    def apply(self, series_max: int) -> None:
        """Use another cap for the pages from now on."""
        self._series_max = series_max

    def render(self, samples: Iterable[TenantSample | TenantSeries]) -> Iterator[bytes]:
        """Make one page, which comes last; before it nothing, once for every few tenants, so that others may have a turn.

        A tenant is shown whole or, beyond the cap, not at all, so that its numbers can be added up.
        """
        by_metric: dict[Metric, list[str]] = {}
        count = 0
        for number, sample in enumerate(samples, 1):
            if number % _SLICE == 0:
                yield b""
            series = sample.series
            size = sum(map(len, series.values()))
            if count + size > self._series_max:
                self.dropped += size
                continue
            count += size
            for metric, numbers in series.items():
                by_metric.setdefault(metric, []).extend(_tenant_lines(metric, sample.tenant, numbers))
        page = [
            line for metric in metrics.DECLARED if metric in by_metric for line in (*_head(metric), *by_metric[metric])
        ]
        yield "\n".join([*page, ""]).encode()


def _tenant_lines(metric: Metric, tenant: str, numbers: Series) -> list[str]:
    head = f'{metric.name}{{tenant="{tenant.translate(_ESCAPES)}"'
    lines = []
    count = len(metric.labels)
    for labels, number in numbers.items():
        pairs = _pairs(metric, labels[:count])
        of_worker = f',{_WORKER}="{labels[count]}"' if len(labels) > count else ""
        lines.append(f"{head},{pairs}{of_worker}}} {number}" if pairs else f"{head}{of_worker}}} {number}")
    return lines


def _by_labels(values: Values) -> dict[Labels, Figure]:
    if isinstance(values, Mapping):
        return {labels if isinstance(labels, tuple) else (labels,): number for labels, number in values.items()}
    return {(): values}


def _with_known(metric: Metric, numbers: Series) -> Series:
    return {**dict.fromkeys(metric.known, 0), **numbers} if metric.known else numbers


def _head(metric: Metric) -> tuple[str, str]:
    return f"# HELP {metric.name} {metric.sentence}", f"# TYPE {metric.name} {metric.kind.value}"


def _lines(metric: Metric, labels: Labels, figure: Figure) -> Iterator[str]:
    if isinstance(figure, Distribution):
        yield from _histogram_lines(metric, labels, figure)
        return
    pairs = _pairs(metric, labels)
    yield f"{metric.name}{{{pairs}}} {figure}" if pairs else f"{metric.name} {figure}"


@lru_cache(maxsize=4096)  # label values come from the program: there are few, and each is asked for at every scrape
def _pairs(metric: Metric, labels: tuple[str, ...]) -> str:
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name}: expected labels {metric.labels}, got {labels}")
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(metric.labels, labels, strict=True))


def _histogram_lines(metric: Metric, labels: Labels, figure: Distribution) -> Iterator[str]:
    pairs = _pairs(metric, labels)
    first, whole = (f"{pairs},", f"{{{pairs}}}") if pairs else ("", "")
    seen = 0
    for bound, count in zip((*metric.buckets, "+Inf"), figure.counts, strict=True):
        seen += count
        yield f'{metric.name}_bucket{{{first}le="{bound}"}} {seen}'
    yield f"{metric.name}_sum{whole} {figure.total}"
    yield f"{metric.name}_count{whole} {seen}"
