"""/tenants/{tenant}/quotas: every limit in force, how much of it is used, and a change of the tenant's own."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json
from iothub.dashboard.chart import Chart, LiveCharts, Series
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.limits import Value, limit_columns, limit_rows, per_second, read, shown, written
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Table

# Limits that the sampler sees used: the field of its points, the title, the unit of the chart.
_CHARTS = {
    "connections": ("connections", "Connections", ""),
    "publish_messages": ("received", "Messages in", "/s"),
    "deliver_messages": ("delivered", "Messages out", "/s"),
    "publish_bytes": ("bytes_in", "Bytes in", "B/s"),
    "deliver_bytes": ("bytes_out", "Bytes out", "B/s"),
    "queued_messages": ("queued", "Queued messages", ""),
}


@page("/tenants/{tenant}/quotas", title="Limits", scope="quotas:read", group=TENANT, icon="speed", key="q")
async def show(view: View) -> None:
    path = f"{view.tenant_path}/quotas:effective"
    own = (await view.api.get(f"{view.tenant_path}/quotas"))["limits"]
    parts.heading("Limits", f"{len(own)} of its own, the others are those of its plan")
    sees = view.may("tenant-metrics:read") and view.me.tenant in ("", view.tenant)
    usages = view.state.sampler.usages.get(view.tenant, []) if sees else []
    rows = await limit_rows(view, path, usages)
    if sees:
        values = {row["name"]: row["value"] for row in rows}
        with parts.grid():
            charts = [_chart(name, values.get(name)) for name in _CHARTS]
        LiveCharts(charts, lambda: view.tenant_points)

    async def edit(row: Json) -> None:
        await edit_limit(view, view.tenant_path, str(row["name"]), table)

    async def fetch() -> list[Json]:
        return await limit_rows(view, path, usages)

    table = Table(
        view,
        "",
        limit_columns(),
        empty=Empty("No limits."),
        actions=[Action("edit", "Change", edit, "quotas:write")],
        fetch=fetch,
        rows=0,
    )
    await table.load()


def _chart(name: str, value: object) -> Chart:
    field, title, unit = _CHARTS[name]
    limit = per_second(value) if unit else float(value) if isinstance(value, int) else None
    note = f"limit {shown(name, value)}" if value not in (None, "unlimited") else "no limit"
    return Chart(title, unit, [Series(field, title.lower())], limit=limit, note=note)


async def edit_limit(view: View, owner: str, name: str, table: Table, device: str = "") -> None:
    """Show what a limit of the tenant or a device is and what it will be; another's change in between is refused by REST.

    `owner`: its path.
    """
    path = f"{owner}/quotas"
    found = await view.do(view.api.show(path))
    if found is None:
        return
    old: Value | None = found.row["limits"].get(name)
    given = {"value": "" if old is None else written(old)}

    def draw() -> None:
        field = parts.field("Value", given, "value", "autofocus clearable")
        field.props["hint"] = "such as 1000, 500/1s,100000/1d or unlimited; empty: it is inherited"
        with ui.element("div").classes("io-diff"):
            ui.label("Before and after").classes("io-soft")
            ui.label(_shown(old)).classes("io-diff-old")
            ui.label().classes("io-diff-new").bind_text_from(given, "value", lambda text: _shown(read(text or "")))

    async def send() -> object | None:
        changed = {"limits": {name: read(given["value"] or "")}}
        made = await view.do(view.api.patch(path, changed, etag=found.etag), f"The limit {name} is changed.")
        if made is not None:
            await table.load()
        return made

    def line() -> str:
        value = read(given["value"] or "")
        of = ["--device", device] if device else []
        if value is None:
            return command("quota", "unset", view.tenant, name, *of)
        return command("quota", "set", view.tenant, f"{name}={written(value)}", *of)

    await dialogs.form(f"{name} of {device or view.tenant}", draw, send, verb="Save", command=line)


def _shown(value: Value | None) -> str:
    return "inherited" if value is None else written(value)
