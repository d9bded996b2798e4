"""/: the platform at a glance."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import parts, units
from iothub.dashboard.api import Json, RefusalError, part
from iothub.dashboard.chart import Chart, LiveCharts, Series
from iothub.dashboard.frame import View, page
from iothub.dashboard.parts import Empty, Figure
from iothub.dashboard.sampler import Sampler

_REASONS = 6  # of drops, each with a colour of its own


@page("/", title="Overview", scope="metrics:read", icon="space_dashboard", key="o")
async def show(view: View) -> None:
    sampler = view.state.sampler
    parts.heading("Overview")
    status = await _status(view) if view.may("status:read") else {}
    _alarms(status.get("hub", {}).get("alarms") or [])
    figures = _Figures(sampler, status)
    with parts.grid():
        charts = _charts(sampler)
    lists = _Lists(sampler)
    if view.may("status:read"):
        await _nodes(view)

    def tick() -> None:
        figures.update()
        lists.update()

    LiveCharts(charts, lambda: list(sampler.points), on_tick=tick)


async def _status(view: View) -> Json:
    try:
        return await view.api.get("/status")
    except RefusalError as refusal:
        parts.problem(refusal)
        return {}


def _alarms(alarms: list[Json]) -> None:
    for alarm in alarms:
        kind = str(alarm.get("severity", ""))
        with (
            ui.element("div")
            .classes(f"io-alarm io-alarm-{kind}" if kind == "critical" else "io-alarm")
            .props("role=alert")
        ):
            parts.badge(kind or "warning")
            ui.label(str(alarm.get("name", ""))).classes("io-strong")
            ui.label(str(alarm.get("detail") or alarm.get("message") or "")).classes("io-soft")


class _Figures:
    """The row of numbers on top."""

    def __init__(self, sampler: Sampler, status: Json) -> None:
        self._sampler = sampler
        tenants = status.get("tenants")
        with parts.grid("tiles"):
            self._connections = Figure("Connections")
            self._received = Figure("Messages in")
            self._delivered = Figure("Messages out")
            self._dropped = Figure("Drops")
            self._sessions = Figure("Sessions")
            self._queued = Figure("Queued")
            Figure("Tenants", units.exact(tenants), href="/tenants")
        self._problem = ui.label().classes("io-soft")
        self._limit = status.get("hub", {}).get("connections_limit")
        self.update()

    def update(self) -> None:
        now = self._sampler.last
        self._problem.set_text(self._sampler.problem)
        self._problem.set_visibility(bool(self._sampler.problem))
        of = f"of {units.count(self._limit)}" if self._limit else ""
        self._connections.set(units.count(now.get("connections")), of)
        self._received.set(_rate(now.get("received")), units.size(now.get("bytes_in")) + "/s" if now else "")
        self._delivered.set(_rate(now.get("delivered")), units.size(now.get("bytes_out")) + "/s" if now else "")
        self._dropped.set(_rate(now.get("dropped")))
        self._sessions.set(
            units.count(now.get("sessions")), f"{units.count(now.get('offline'))} offline" if now else ""
        )
        self._queued.set(units.count(now.get("queued")), units.size(now.get("queued_bytes")) if now else "")


def _rate(value: float | None) -> str:
    return units.NOTHING if value is None else f"{units.count(value)}/s"


def _charts(sampler: Sampler) -> list[Chart]:
    reasons = sampler.drop_reasons()[:_REASONS]
    drops = [Series(f"dropped:{reason}", reason.replace("_", " ")) for reason in reasons] or [
        Series("dropped", "drops")
    ]
    return [
        Chart("Connections", "", [Series("connections", "open")], prom="sum(iothub_connections)"),
        Chart(
            "Messages",
            "/s",
            [Series("received", "in"), Series("delivered", "out")],
            prom="sum(rate(iothub_messages_received_total[1m]))",
        ),
        Chart(
            "Drops by reason",
            "/s",
            drops,
            is_stacked=True,
            prom="sum by (reason) (rate(iothub_messages_dropped_total[1m]))",
        ),
        Chart(
            "Bytes",
            "B/s",
            [Series("bytes_in", "in"), Series("bytes_out", "out")],
            prom="sum(rate(iothub_bytes_sent_total[1m]))",
        ),
        Chart(
            "Store commit",
            "s",
            [Series("commit_p50", "p50"), Series("commit_p99", "p99")],
            note="acks wait for it",
            prom="histogram_quantile(0.99, sum by (le) (rate(iothub_store_commit_duration_seconds_bucket[1m])))",
        ),
        Chart(
            "Reactor tick",
            "s",
            [Series("tick_p99", "p99")],
            note="p99",
            prom="histogram_quantile(0.99, sum by (le) (rate(iothub_reactor_tick_duration_seconds_bucket[1m])))",
        ),
        Chart(
            "Sessions",
            "",
            [Series("sessions", "all"), Series("offline", "offline")],
            prom="sum by (state) (iothub_sessions)",
        ),
        Chart("Queued messages", "", [Series("queued", "queued")], prom="iothub_queued_messages"),
        Chart(
            "Connects and disconnects",
            "/s",
            [Series("connects", "connects"), Series("disconnects", "disconnects")],
            prom="sum(rate(iothub_connects_total[1m]))",
        ),
    ]


class _Lists:
    """The tenants that do most, and those that are near a limit. Drawn anew when a sample of tenants has come."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._drawn_s = -1.0
        with parts.grid("lists"):
            self._boxes = [ui.element("div") for _ in range(4)]
        self.update()

    def update(self) -> None:
        last_s = self._sampler.tenants[-1].at_s if self._sampler.tenants else 0.0
        if last_s == self._drawn_s:
            return
        self._drawn_s = last_s
        for box in self._boxes:
            box.clear()
        with self._boxes[0]:
            self._top("Most messages", "received", lambda value: f"{units.count(value)}/s")
        with self._boxes[1]:
            self._top("Most bytes in", "bytes_in", lambda value: f"{units.size(value)}/s")
        with self._boxes[2]:
            self._top("Most drops", "dropped", lambda value: f"{units.count(value)}/s")
        with self._boxes[3], parts.panel("Near a limit", note="80 % and more"):
            self._near()

    def _top(self, title: str, field: str, show: object) -> None:
        with parts.panel(title, note="last 30 s"):
            found = self._sampler.top(field)
            if not found:
                ui.label("None.").classes("io-soft")
            with ui.element("div").classes("io-lines"):
                for tenant, value in found:
                    with ui.element("div").classes("io-line"):
                        ui.link(tenant, f"/tenants/{part(tenant)}")
                        ui.label(show(value))  # type: ignore[operator]

    def _near(self) -> None:
        found = self._sampler.near_limits()
        if not found:
            ui.label("None.").classes("io-soft")
        for usage in found:
            with ui.element("div").classes("io-line"):
                ui.link(f"{usage.tenant}: {usage.quota}", f"/tenants/{part(usage.tenant)}/quotas")
                ui.label(units.share(usage.share))
            parts.meter(usage.share)


async def _nodes(view: View) -> None:
    try:
        nodes = (await view.api.page("/nodes")).items
    except RefusalError:
        return  # the status has said it
    with parts.panel("Hubs"):
        if not nodes:
            parts.empty(Empty("No hub runs.", parts.command("serve")))
        with parts.grid("lists"):
            for node in nodes:
                with ui.element("div").classes("io-figure io-node"):
                    with ui.element("div").classes("io-row"):
                        ui.label(str(node["name"])).classes("io-strong")
                        parts.badge(str(node["state"]))
                    rows = [
                        ("Clients", units.exact(node.get("clients"))),
                        ("Version", str(node.get("version") or units.NOTHING)),
                    ]
                    if node.get("round_trip_ms") is not None:
                        rows.append(("Round trip", f"{node['round_trip_ms']} ms"))
                    if node.get("cause"):
                        rows.append(("Cause", str(node["cause"])))
                    parts.facts(rows)
