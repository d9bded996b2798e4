"""Plots as SVG text that takes its ink from the page around it: readable on light and dark.

Knows numbers and words, no tenant.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_INK = "#010203"  # stands for the page's own colour of text
_COLOURS = ("#3b82c4", "#e08a3c", "#4ba36b", "#c65f86", "#8a73c9", "#9a8f3d", "#5aa7ad", "#b5714d")
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "iothub",  # the same numbers give the same text
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_DASHES = ("-", "--", ":")  # a line that lies on an equal one lets it be seen
_SIZE = (6.4, 2.4)  # inches
_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_META = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def lines(title: str, days: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Return a plot of one line for each name over days."""
    with style.context(_STYLE):
        figure, axes = _drawing()
        for number, (name, values) in enumerate(series.items()):
            colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
            axes.plot(range(len(days)), values, label=name, color=colour, linestyle=dashes, marker="o", ms=3)
        _finish(axes, title, days)
        return _svg(figure)


def stacks(title: str, days: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Return a plot of one bar for each day, in parts."""
    with style.context(_STYLE):
        figure, axes = _drawing()
        below = [0.0] * len(days)
        for number, (name, values) in enumerate(series.items()):
            axes.bar(range(len(days)), values, bottom=below, label=name, color=_COLOURS[number % len(_COLOURS)])
            below = [low + value for low, value in zip(below, values, strict=True)]
        _finish(axes, title, days)
        return _svg(figure)


def _drawing() -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    return figure, figure.add_subplot()


def _finish(axes: Axes, title: str, days: Sequence[str]) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xticks(range(len(days)), [day[5:] for day in days])
    axes.set_ylim(bottom=0)
    if axes.get_legend_handles_labels()[1]:  # nothing happened on any of the days: there is nothing to explain
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _svg(figure: Figure) -> str:
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = _META.sub("", _HEAD.sub("", written.getvalue()))
    return text.replace(_INK, "currentColor").strip()
