"""The page of a hub without workers, byte by byte."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from iothub_services.metrics import metrics
from iothub_services.metrics.exposition import Registry
from iothub_services.metrics.metrics import Kind, Metric

PAGE = Path(__file__).with_name("page.txt")


def test_page_of_a_single_hub_is_what_it_was() -> None:
    """Each metric with a figure of its own; what is of the process comes after it."""
    registry = fed()

    page = registry.render()

    declared, _, process = page.partition(b"# HELP process_")
    if b"# HELP python_gc" in declared:
        declared = declared.partition(b"# HELP python_gc")[0]
    lines = declared.decode().splitlines(keepends=True)
    sentences = {metric.name: metric.sentence for metric in metrics.DECLARED}
    for line, after in pairwise(lines):
        if line.startswith("# HELP"):
            name = after.split()[2]
            assert line == f"# HELP {name} {sentences[name]}\n"
    assert "".join(line for line in lines if not line.startswith("# HELP")) == PAGE.read_text()
    assert process


def fed() -> Registry:
    """Return a registry in which each metric of `PAGE` has a source."""
    registry = Registry()
    names = {line.split()[2] for line in PAGE.read_text().splitlines() if line.startswith("# TYPE")}
    for number, metric in enumerate(each for each in metrics.DECLARED if each.name in names):
        _feed(registry, metric, number)
    return registry


def _feed(registry: Registry, metric: Metric, number: int) -> None:
    labels = tuple(f'{label} "{number}"' for label in metric.labels)
    if metric.kind is Kind.HISTOGRAM:
        timing = registry.timing(metric, *labels)
        for seconds in (0.0001, 0.03, number / 7, 99.0):
            timing.observe(seconds)
    elif len(labels) == 1:
        registry.feed(metric, lambda: {labels[0]: number, "other": number + 0.5})
    else:
        registry.feed(metric, lambda: {labels: number} if labels else number / 4)
