"""Reads Prometheus's text form: samples by name, and figures made of them. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

Labels = dict[str, str]
Samples = dict[str, list[tuple[Labels, float]]]
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_ESCAPED = re.compile(r"\\.")


def read(text: str) -> Samples:
    r"""Return all samples of a page; what is no sample is left out.

    >>> read('a_total{x="1"} 5\n# HELP a b\nup 1')
    {'a_total': [({'x': '1'}, 5.0)], 'up': [({}, 1.0)]}
    """
    found: Samples = {}
    for name, labels, value in _lines(text):
        found.setdefault(name, []).append((labels, value))
    return found


def _lines(text: str) -> Iterator[tuple[str, Labels, float]]:
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or line.startswith("#"):
            continue
        name, labels, value = match.groups()
        yield name, {key: _plain(each) for key, each in _LABEL.findall(labels or "")}, float(value)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[0], found[0]), text) if "\\" in text else text


def total(samples: Samples, name: str, **labels: str) -> float:
    """Add up the samples of a name that have these labels."""
    return sum(value for found, value in samples.get(name, ()) if labels.items() <= found.items())


def by_label(samples: Samples, name: str, label: str) -> dict[str, float]:
    """Add up the samples of a name by one of their labels."""
    made: dict[str, float] = {}
    for labels, value in samples.get(name, ()):
        key = labels.get(label, "")
        made[key] = made.get(key, 0.0) + value
    return made


def buckets(samples: Samples, name: str) -> dict[float, float]:
    """Return a histogram: how many were at most so large, all its labels together."""
    return {float(bound): value for bound, value in by_label(samples, f"{name}_bucket", "le").items() if bound}


def quantile(part: float, now: Mapping[float, float], before: Mapping[float, float]) -> float | None:
    """Return about how large this part of what came between two histograms was at most; None: nothing came.

    >>> quantile(0.5, {1.0: 10, 2.0: 20, float("inf"): 20}, {})
    1.0
    """
    grown = [(bound, value - before.get(bound, 0.0)) for bound, value in sorted(now.items())]
    if not grown or grown[-1][1] <= 0:
        return None
    wanted = part * grown[-1][1]
    lower, below = 0.0, 0.0
    for bound, value in grown:
        if value >= wanted:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (wanted - below) / max(value - below, 1e-9)
        lower, below = bound, value
    return lower


def names(rows: Iterable[tuple[Labels, float]], label: str) -> set[str]:
    return {labels[label] for labels, _ in rows if label in labels}
