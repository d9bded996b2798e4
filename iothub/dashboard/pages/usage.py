"""/tenants/{tenant}/usage: what a tenant has used, as the job `usage` has summed it."""

from __future__ import annotations

from typing import Any

from nicegui import events, ui

from iothub.dashboard import parts
from iothub.dashboard.bars import Bars
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Column, Table
from iothub.dashboard.units import exact, size

_BY = {"hour": "By hour", "day": "By day", "total": "In total"}


@page("/tenants/{tenant}/usage", title="Usage", scope="usage:read", group=TENANT, icon="query_stats", key="u")
async def show(view: View) -> None:
    actions = parts.heading("Usage", "of the last 7 days, in UTC")
    by = view.query.get("by", "day")
    by = by if by in _BY else "day"

    async def changed(event: events.ValueChangeEventArguments[Any]) -> None:
        await table.filter(by=event.value)
        draw()

    def draw() -> None:
        panel.set_visibility(bool(table.rows))  # the table says why there is nothing
        chart.fill(
            [str(row["name"]) for row in table.rows], [[row["messages_in"], row["messages_out"]] for row in table.rows]
        )

    with actions:
        ui.toggle(_BY, value=by, on_change=changed).props(parts.TOGGLE)
    with ui.element("div") as panel, parts.panel("Messages"):
        chart = Bars(("in", "out"))
    table = Table(
        view,
        f"{view.tenant_path}/usage",
        (
            Column("name", "Period"),
            Column("messages_in", "Messages in", "number", exact),
            Column("messages_out", "Messages out", "number", exact),
            Column("bytes_in", "Bytes in", "number", size),
            Column("bytes_out", "Bytes out", "number", size),
            Column("connection_minutes", "Connection minutes", "number", exact),
            Column("stored_byte_hours", "Stored byte hours", "number", exact),
        ),
        empty=Empty(
            "Nothing is summed yet: the job `usage` does it every night.", command("job", "run", "usage"), "jobs:write"
        ),
        query={"by": by},
        rows=0,
        is_filter=False,
    )
    await table.load()
    draw()
