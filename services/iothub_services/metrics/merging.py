"""Several workers' figures as those of one machine: plain data in, plain data out.

Knows no link, no file and no text form: `exposition` reads and renders figures, others carry them.

Theory. Counters and histograms are added up. A gauge is what `Metric.merge` says. What several workers count alike, such as the messages of one
tenant's queues, a worker gives in parts, with the part's name as one label more: of each part the workers' largest figure holds, and a part that
only one worker can have is simply there. The parts are added up when all have answered (`whole`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from iothub_services.metrics import metrics
from iothub_services.metrics.metrics import Kind, Merge, Metric

Number: TypeAlias = "int | float"
Labels: TypeAlias = tuple[str, ...]
Row: TypeAlias = Mapping[str, object]

_BY_NAME = {metric.name: metric for metric in metrics.DECLARED}


@dataclass(frozen=True, slots=True)
class Distribution:
    """The series of a histogram: how many were observed in each bucket, the last one without a bound, and the total of what was observed."""

    counts: tuple[int, ...]
    total: float

    def plus(self, other: Distribution) -> Distribution:
        counts = tuple(one + another for one, another in zip(self.counts, other.counts, strict=True))
        return Distribution(counts, self.total + other.total)


Figure: TypeAlias = "Number | Distribution"
Series: TypeAlias = Mapping[Labels, Figure]
Figures: TypeAlias = Mapping[Metric, Series]


def merge(all_figures: Iterable[Figures]) -> dict[Metric, dict[Labels, Figure]]:
    """Return the figures of all; the order of the first who has a series stays."""
    merged: dict[Metric, dict[Labels, Figure]] = {}
    for figures in all_figures:
        for metric, series in figures.items():
            known = merged.setdefault(metric, {})
            for labels, figure in series.items():
                known[labels] = _merged(metric, known[labels], figure) if labels in known else figure
    return merged


def whole(figures: Figures) -> dict[Metric, dict[Labels, Figure]]:
    """Add up the parts."""
    return {metric: _whole(metric, series) for metric, series in figures.items()}


def counted(figures: Figures) -> Figures:
    """Return what only rises: counters and histograms."""
    return {metric: series for metric, series in figures.items() if metric.kind is not Kind.GAUGE}


def rows_of(figures: Figures) -> Iterator[Row]:
    """Yield figures as JSON, a row for each metric."""
    for metric, series in figures.items():
        yield {"metric": metric.name, "series": [[list(labels), _plain(figure)] for labels, figure in series.items()]}


def figures_in(rows: Iterable[Row]) -> dict[Metric, dict[Labels, Figure]]:
    """Read such rows. What this version does not know is passed over: a worker that begins anew may be of a later one."""
    found: dict[Metric, dict[Labels, Figure]] = {}
    for row in rows:
        metric, series = _BY_NAME.get(str(row.get("metric"))), row.get("series")
        if metric is not None and isinstance(series, list):
            found[metric] = dict(_series_in(metric, series))
    return found


def _merged(metric: Metric, one: Figure, other: Figure) -> Figure:
    if isinstance(one, Distribution) or isinstance(other, Distribution):
        assert isinstance(one, Distribution)  # noqa: S101  for the types: a metric is a histogram or is none
        assert isinstance(other, Distribution)  # noqa: S101
        return one.plus(other)
    if metric.merge is Merge.MAX:
        return max(one, other)
    return min(one, other) if metric.merge is Merge.MIN else one + other


def _whole(metric: Metric, series: Series) -> dict[Labels, Figure]:
    count = len(metric.labels)
    if not series and not count and metric.kind is not Kind.HISTOGRAM:
        return {(): 0}
    if all(len(labels) == count for labels in series):
        return dict(series)
    sums: dict[Labels, Figure] = {}
    for labels, figure in series.items():
        before = sums.get(labels[:count], 0)
        if not isinstance(figure, Distribution) and not isinstance(before, Distribution):
            sums[labels[:count]] = before + figure
    return sums


def _plain(figure: Figure) -> object:
    return [list(figure.counts), figure.total] if isinstance(figure, Distribution) else figure


def _series_in(metric: Metric, series: list[object]) -> Iterator[tuple[Labels, Figure]]:
    for pair in series:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], list):
            labels, figure = tuple(str(label) for label in pair[0]), _figure_in(metric, pair[1])
            if figure is not None and len(labels) in {len(metric.labels), len(metric.labels) + 1}:
                yield labels, figure


def _figure_in(metric: Metric, value: object) -> Figure | None:
    if metric.kind is not Kind.HISTOGRAM:
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], list):
        return None
    counts, total = value
    is_sound = len(counts) == len(metric.buckets) + 1 and all(type(count) is int for count in counts)
    return Distribution(tuple(counts), float(total)) if is_sound and isinstance(total, int | float) else None
