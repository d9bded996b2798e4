"""/tenants/{tenant}/streams, and one of them: messages that go to Kafka topics, and records of applications that come from there."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import exact, seconds

_DIRECTIONS = {"out": "out: devices to Kafka", "in": "in: Kafka to devices"}
_SHOWN = ("name", "tenant", "direction", "filter", "topic", "partitions", "retention_s")
_HOUR_S = 3600


@page("/tenants/{tenant}/streams", title="Streams", scope="streams:read", group=TENANT, icon="stream")
async def show(view: View) -> None:
    actions = parts.heading("Streams", "topics in Kafka that messages go to, and come from")

    async def delete_row(row: Json) -> None:
        if await _delete(view, row):
            await table.reload()

    table = Table(
        view,
        f"{view.tenant_path}/streams",
        (
            Column("name", "Name", href=lambda row: f"{view.tenant_path}/streams/{part(row['name'])}"),
            Column("direction", "Direction"),
            Column("filter", "Topic Filter", "code"),
            Column("topic", "Topic in Kafka", "code"),
            Column("partitions", "Partitions", "number"),
            Column("retention_s", "Kept for", show=seconds),
        ),
        empty=Empty(
            "No streams: applications can read messages from Kafka, without an MQTT client.",
            command("stream", "create", view.tenant, "telemetry", "sensors/#"),
            "streams:write",
        ),
        actions=[Action("delete", "Delete", delete_row, "streams:write")],
    )
    if view.may("streams:write"):
        with actions:
            ui.button("Create stream", icon="add", on_click=lambda: _create(view, table)).props("unelevated no-caps")
    await table.load()


@page("/tenants/{tenant}/streams/{name}", title="Stream", scope="streams:read")
async def show_one(view: View) -> None:
    name = str(view.path["name"])
    row = await view.api.get(f"{view.tenant_path}/streams/{part(name)}")

    async def delete_here() -> None:
        if await _delete(view, row):
            ui.navigate.to(f"{view.tenant_path}/streams")

    with parts.heading(name, f"stream of {view.tenant}"):
        if view.may("streams:write"):
            ui.button("Delete", icon="delete", color="negative", on_click=delete_here).props("outline no-caps")
    with parts.grid():
        with parts.panel("Stream"):
            parts.facts(
                [
                    ("Direction", _DIRECTIONS.get(str(row["direction"]), str(row["direction"]))),
                    ("Topic Filter", str(row["filter"])),
                    ("Topic in Kafka", str(row["topic"])),
                    ("Partitions", text(row["partitions"])),
                    ("Kept for", seconds(row["retention_s"])),
                ]
            )
        with parts.panel("Since the hub's start"):
            parts.facts([_fact(key, value) for key, value in row.items() if key not in _SHOWN])


def _fact(name: str, value: object) -> tuple[str, str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return name.replace("_", " ").capitalize(), exact(value) if is_number else text(value)  # type: ignore[arg-type]  # a number


async def _create(view: View, table: Table) -> None:
    given: Json = {"name": "", "filter": "", "direction": "out", "partitions": None, "hours": None}

    def draw() -> None:
        parts.field("Name", given, "name", "autofocus")
        field = parts.field("Topic Filter", given, "filter")
        field.props["hint"] = "such as sensors/#"
        ui.select(_DIRECTIONS, label="Direction").props("outlined dense options-dense").bind_value(given, "direction")
        partitions = ui.number("Partitions", min=1, max=1000, precision=0).props("outlined dense")
        partitions.props["hint"] = "empty: the setting streams.partitions"
        partitions.bind_value(given, "partitions")
        hours = ui.number("Kept for (hours)", min=1, precision=0).props("outlined dense").bind_value(given, "hours")
        hours.props["hint"] = "empty: the setting streams.retention"

    async def send() -> object | None:
        body: Json = {name: given[name] for name in ("name", "filter", "direction")}
        if given["partitions"]:
            body["partitions"] = int(given["partitions"])
        if given["hours"]:
            body["retention_s"] = int(given["hours"]) * _HOUR_S
        made = await view.do(view.api.post(f"{view.tenant_path}/streams", body), f"Stream {given['name']} is created.")
        if made is None:
            return None
        if made.get("existing_topics"):
            parts.notify(f"Topics that were there are used as they are: {text(made['existing_topics'])}", "warning")
        await table.load()
        return made

    def line() -> str:
        words = ["stream", "create", view.tenant, given["name"] or "NAME", given["filter"] or "FILTER"]
        words += ["--direction", "in"] if given["direction"] == "in" else []
        words += ["--partitions", int(given["partitions"])] if given["partitions"] else []
        words += ["--retention", f"{int(given['hours'])}h"] if given["hours"] else []
        return command(*words)

    await dialogs.form("Create stream", draw, send, verb="Create", command=line)


async def _delete(view: View, row: Json) -> bool:
    name = str(row["name"])
    kept = {"topic": False}
    sure = await dialogs.confirm(
        f"Delete stream {name}",
        f"Its rules and its topic {row['topic']}, with every record in it, are deleted.",
        verb="Delete",
        danger=Danger.SEVERE,
        name=name,
        command=command("stream", "delete", view.tenant, name, "--yes"),
        draw=lambda: ui.checkbox("Keep the topic in Kafka, with its records").bind_value(kept, "topic"),
    )
    if not sure:
        return False
    path = f"{view.tenant_path}/streams/{part(name)}"
    request = view.api.delete(path, keep_topic=str(kept["topic"]).lower())
    return await view.do(request, f"Stream {name} is deleted.") is not None
