"""A chart of bars, one group for each period."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from iothub.dashboard.chart import COLOURS, flat_axis, tooltip, upright_axis


class Bars:
    """One chart. `names` are those of the bars of a group."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.element = ui.echart(
            {
                "animation": False,
                "color": list(COLOURS),
                "grid": {"left": 6, "right": 10, "top": 12, "bottom": 30, "containLabel": True},
                "legend": {
                    "bottom": 0,
                    "icon": "roundRect",
                    "itemWidth": 10,
                    "itemHeight": 4,
                    "textStyle": {"color": "#8593a3"},
                },
                "tooltip": tooltip(""),
                "xAxis": {**flat_axis("category"), "data": []},
                "yAxis": upright_axis(""),
                "series": [{"name": name, "type": "bar", "barMaxWidth": 28, "data": []} for name in names],
            }
        ).classes("io-chart")

    def fill(self, periods: Sequence[str], values: Sequence[Sequence[float]]) -> None:
        self.element.options["xAxis"]["data"] = list(periods)
        for number in range(len(self._names)):
            self.element.options["series"][number]["data"] = [row[number] for row in values]
        self.element.update()
