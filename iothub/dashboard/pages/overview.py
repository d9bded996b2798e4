"""/: the platform at a glance; for who is of one tenant, that tenant."""

from __future__ import annotations

from iothub.dashboard import parts
from iothub.dashboard.chart import Chart, LiveCharts, Series
from iothub.dashboard.frame import View, page


@page("/", title="Overview", scope="", icon="space_dashboard", key="o")
async def show(view: View) -> None:
    parts.heading("Overview")
    if not view.may("metrics:read"):
        return
    sampler = view.state.sampler
    with parts.grid():
        charts = [
            Chart("Connections", "", [Series("connections", "open")], prom="sum(iothub_connections)"),
            Chart("Messages", "/s", [Series("received", "in"), Series("delivered", "out")]),
        ]
    LiveCharts(charts, lambda: list(sampler.points))
