"""/tenants/{tenant}: one tenant: what it does now, its settings, and the ways to everything it has."""

from __future__ import annotations

from functools import partial

from nicegui import ui

from iothub.dashboard import dialogs, parts, tenant_actions, tenant_files, units
from iothub.dashboard.api import Json, Shown
from iothub.dashboard.chart import Chart, LiveCharts, Series
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Figure, command
from iothub.dashboard.table import text

_POLICIES = ["owner", "equal", "prefix"]
_NO_FIGURES = (
    "No figures yet: the hub has them from the tenant's first client on, and this page reads them every half minute."
)

_NOT_READ = "The hub's figures cannot be read at the moment."


@page("/tenants/{tenant}", title="Summary", scope="tenants:read", group=TENANT, icon="insights", key="s")
async def show(view: View) -> None:
    found = await view.api.show(view.tenant_path)
    row = found.row
    actions = parts.heading(view.tenant, str(row["display_name"]))
    with actions:
        parts.badge(str(row["state"]))
        if row["is_protected"]:
            parts.badge("protected")
        if view.may("tenants:write"):
            ui.button("Edit", icon="edit", on_click=partial(_edit, view, found)).props(
                "outline no-caps dense padding='4px 12px'"
            )
            _menu(view, row)
    figures = _Figures(view)
    if view.may("tenant-metrics:read"):
        with parts.grid():
            charts = _charts(view)
        LiveCharts(charts, lambda: view.tenant_points, on_tick=figures.update)
    _settings(row)


def _charts(view: View) -> list[Chart]:
    return [
        Chart(
            "Connections",
            "",
            [Series("connections", "open")],
            prom=_prom(view, "iothub_tenant_connections{%s}"),
        ),
        Chart(
            "Messages",
            "/s",
            [Series("received", "in"), Series("delivered", "out")],
            prom=_prom(view, "sum(rate(iothub_tenant_messages_received_total{%s}[1m]))"),
        ),
        Chart(
            "Drops",
            "/s",
            [Series("dropped", "drops")],
            prom=_prom(view, "sum by (reason) (rate(iothub_tenant_messages_dropped_total{%s}[1m]))"),
        ),
        Chart(
            "Bytes",
            "B/s",
            [Series("bytes_in", "in"), Series("bytes_out", "out")],
            prom=_prom(view, "rate(iothub_tenant_bytes_sent_total{%s}[1m])"),
        ),
        Chart(
            "Queued messages",
            "",
            [Series("queued", "queued")],
            prom=_prom(view, "iothub_tenant_queued_messages{%s}"),
        ),
    ]


def _settings(row: Json) -> None:
    with parts.panel("Settings"):
        parts.facts(
            [
                ("Plan", str(row["plan"])),
                ("Client id policy", str(row["client_id_policy"])),
                ("Close on a denied PUBLISH", text(row["is_closed_on_denied_publish"])),
                ("Queue QoS 0", text(row["is_qos0_queued"])),
                ("Allowed networks", text(row["allowed_networks"]) if row["allowed_networks"] else "all"),
                ("Denied networks", text(row["denied_networks"]) if row["denied_networks"] else "none"),
                ("Created (UTC)", units.moment(row["created"])),
            ]
        )


def _prom(view: View, query: str) -> str:
    return query % f'tenant="{view.tenant}"'


class _Figures:
    """The row of numbers on top; each leads to the list behind it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._none = ui.label().classes("io-soft")
        with parts.grid("tiles"):
            self._connections = Figure("Connections", href=f"{view.tenant_path}/clients")
            self._received = Figure("Messages in")
            self._delivered = Figure("Messages out")
            self._dropped = Figure("Drops")
            self._queued = Figure("Queued messages", href=f"{view.tenant_path}/queues")
        self.update()

    def update(self) -> None:
        points = self._view.tenant_points
        now = points[-1][1] if points else {}
        if self._view.may("tenant-metrics:read"):
            self._none.set_text(missing(self._view.state.sampler.problem, bool(points), not self._view.me.tenant))
        self._connections.set(units.count(now.get("connections")))
        self._received.set(_rate(now.get("received")), units.size(now.get("bytes_in")) + "/s" if now else "")
        self._delivered.set(_rate(now.get("delivered")), units.size(now.get("bytes_out")) + "/s" if now else "")
        self._dropped.set(_rate(now.get("dropped")))
        self._queued.set(units.count(now.get("queued")))


def missing(problem: str, has_figures: bool, is_platform: bool) -> str:
    """Say why there are no figures. `problem`: of the sampler; it names what only the platform's people see."""
    if problem:
        return problem if is_platform else _NOT_READ
    return "" if has_figures else _NO_FIGURES


def _rate(value: float | None) -> str:
    return units.NOTHING if value is None else f"{units.count(value)}/s"


def _menu(view: View, row: Json) -> None:
    async def act(action: tenant_actions.TenantAction) -> None:
        if await tenant_actions.run(view, action, view.tenant):
            ui.navigate.to("/tenants" if action.verb == "delete" else view.tenant_path)

    with ui.button("Actions", icon="more_horiz").props("outline no-caps dense padding='4px 12px'"), ui.menu():
        parts.menu_item("Export", partial(tenant_files.export, view, view.tenant), icon="download")
        for action in tenant_actions.ALL:
            if action.when(row):
                parts.menu_item(action.label, partial(act, action), icon=action.icon)


async def _edit(view: View, found: Shown) -> None:
    """Change settings; what somebody else has changed meanwhile is not overwritten."""
    row = found.row
    plans = [str(each["name"]) for each in (await view.api.page("/plans", limit=1000)).items]
    fields = ("display_name", "plan", "client_id_policy", "is_closed_on_denied_publish", "is_qos0_queued")
    given: Json = {name: row[name] for name in fields}
    networks = {name: ", ".join(row[name]) for name in ("allowed_networks", "denied_networks")}

    def draw() -> None:
        parts.field("Display name", given, "display_name")
        ui.select(plans, label="Plan").props("outlined dense options-dense").bind_value(given, "plan")
        ui.select(_POLICIES, label="Client id policy").props("outlined dense options-dense").bind_value(
            given, "client_id_policy"
        )
        ui.checkbox("Close a connection on a denied PUBLISH").bind_value(given, "is_closed_on_denied_publish")
        ui.checkbox("Queue QoS 0 for offline sessions").bind_value(given, "is_qos0_queued")
        parts.field("Allowed networks, with commas", networks, "allowed_networks")
        parts.field("Denied networks, with commas", networks, "denied_networks")

    def changes() -> Json:
        wanted = given | {
            name: [each.strip() for each in value.split(",") if each.strip()] for name, value in networks.items()
        }
        return {name: value for name, value in wanted.items() if value != row[name]}

    async def send() -> object | None:
        if not changes():
            return True
        made = await view.do(view.api.patch(view.tenant_path, changes(), etag=found.etag), "The settings are changed.")
        if made is not None:
            ui.navigate.to(view.tenant_path)
        return made

    await dialogs.form(
        f"Settings of {view.tenant}", draw, send, verb="Save", command=lambda: _line(view.tenant, changes())
    )


_OPTIONS = {"display_name": "--display-name", "plan": "--plan", "client_id_policy": "--client-id-policy"}


def _line(tenant: str, changes: Json) -> str:
    words = [word for name, option in _OPTIONS.items() if name in changes for word in (option, changes[name])]
    return command("tenant", "update", tenant, *words)
