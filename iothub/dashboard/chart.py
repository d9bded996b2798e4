"""Charts over time, which grow while they are looked at.

Knows neither REST nor a resource: it is given points, and asked for new ones. Names of series are drawn as text on a canvas, never as HTML.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from iothub.dashboard import parts
from iothub.dashboard.sampler import EVERY_S, Point

COLOURS = ("#1c9aa5", "#e08a1e", "#7a6ff0", "#d0453b", "#3c9a5f", "#c052a8", "#6b7c8f", "#b59b1d")
SHOWN_S = 900.0
_GREY = "#8593a3"
_GRID = "#8593a333"
_AXIS: dict[str, Any] = {
    "axisLine": {"show": False},
    "axisTick": {"show": False},
    "axisLabel": {"color": _GREY, "fontSize": 11, "hideOverlap": True},
}
Points = Sequence[tuple[float, Point]]


@dataclass(frozen=True, slots=True)
class Series:
    """One line. `field` of the points; `name` is what the legend says."""

    field: str
    name: str


class Chart:
    """One chart. `unit`: one of "", /s, B, B/s, s; `limit` draws a line across; `prom`: the query that draws the same in Grafana."""

    def __init__(  # what a chart consists of
        self,
        title: str,
        unit: str,
        series: Sequence[Series],
        *,
        is_stacked: bool = False,
        limit: float | None = None,
        prom: str = "",
        note: str = "",
    ) -> None:
        self.series = series
        with parts.panel(title, note=note) as right:
            if prom:
                with right:
                    parts.copy_button(prom, "Copy the PromQL").props("icon=query_stats")
            self.element = ui.echart(_options(unit, series, is_stacked, limit)).classes("io-chart")
            self.element.props["role"] = "img"
            self.element.props["aria-label"] = title

    def fill(self, points: Points) -> None:
        for number, each in enumerate(self.series):
            self.element.options["series"][number]["data"] = _data(points, each)


class LiveCharts:
    """The charts of one page: filled once, then every few seconds the points that are new. `on_tick` is called then, too."""

    def __init__(
        self, charts: Sequence[Chart], points: Callable[[], Points], *, on_tick: Callable[[], object] | None = None
    ) -> None:
        self._charts = charts
        self._points = points
        self._on_tick = on_tick
        found = self._recent()
        self._last_s = found[-1][0] if found else 0.0
        for chart in charts:
            chart.fill(found)
        ui.timer(EVERY_S, self._tick, immediate=False)

    def _recent(self) -> Points:
        found = self._points()
        from_s = found[-1][0] - SHOWN_S if found else 0.0
        return [each for each in found if each[0] >= from_s]

    def _tick(self) -> None:
        if self._on_tick is not None:
            self._on_tick()
        new = [each for each in self._points() if each[0] > self._last_s]
        if not new:
            return
        self._last_s = new[-1][0]
        news = {chart.element.id: [_data(new, each) for each in chart.series] for chart in self._charts}
        ui.run_javascript(f"iothub.points({json.dumps(news)}, {(self._last_s - SHOWN_S) * 1000:.0f})")


def upright_axis(unit: str) -> dict[str, Any]:
    label = {**_AXIS["axisLabel"], ":formatter": _format(unit)}
    axis = {**_AXIS, "type": "value", "min": 0, "splitNumber": 3, "axisLabel": label}
    axis["splitLine"] = {"lineStyle": {"color": _GRID}}
    if unit in ("", "B"):
        axis["minInterval"] = 1  # what is counted has no parts
    return axis


def flat_axis(kind: str) -> dict[str, Any]:
    return {**_AXIS, "type": kind, "splitLine": {"show": False}}


def tooltip(unit: str) -> dict[str, Any]:
    """Return the tooltip of all charts: drawn on the canvas, not HTML."""
    return {
        "trigger": "axis",
        "renderMode": "richText",
        "confine": True,
        ":valueFormatter": _format(unit),
        "textStyle": {"fontSize": 12},
    }


def _format(unit: str) -> str:
    """Return the expression that the browser runs to write a value: a constant, no data takes part."""
    return f"iothub.format({json.dumps(unit)})"


def _data(points: Points, series: Series) -> list[list[float | None]]:
    return [[round(at_s * 1000), _rounded(values.get(series.field))] for at_s, values in points]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _options(unit: str, series: Sequence[Series], is_stacked: bool, limit: float | None) -> dict[str, Any]:
    lines = [_line(each, COLOURS[number % len(COLOURS)], is_stacked) for number, each in enumerate(series)]
    if limit is not None and lines:
        lines[0]["markLine"] = {
            "silent": True,
            "symbol": "none",
            "animation": False,
            "lineStyle": {"color": "#d0453b", "type": "dashed", "width": 1.5},
            "label": {"formatter": "limit", "color": "#d0453b", "position": "insideEndTop"},
            "data": [{"yAxis": limit}],
        }
    return {
        "animation": False,
        "color": list(COLOURS),
        "grid": {"left": 6, "right": 10, "top": 12, "bottom": 30 if len(series) > 1 else 6, "containLabel": True},
        "legend": {
            "show": len(series) > 1,
            "bottom": 0,
            "type": "scroll",
            "icon": "roundRect",
            "itemWidth": 10,
            "itemHeight": 4,
            "textStyle": {"color": _GREY, "fontSize": 11},
        },
        "tooltip": tooltip(unit),
        "xAxis": flat_axis("time"),
        "yAxis": {
            **upright_axis(unit),
            **({} if limit is None else {":max": f"range => Math.max(range.max, {float(limit)!r}) * 1.25"}),
        },
        "series": lines,
    }


def _line(series: Series, colour: str, is_stacked: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": series.name,
        "type": "line",
        "showSymbol": False,
        "lineStyle": {"width": 1.6},
        "areaStyle": {"opacity": 0.55 if is_stacked else 0.08},
        "itemStyle": {"color": colour},
        "connectNulls": False,
        "data": [],
    }
    if is_stacked:
        made["stack"] = "all"
    return made
