"""/tenants/{tenant}/retained: topics with a retained message; those that match a filter are deleted together."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts, publish
from iothub.dashboard.api import part
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.pages.queues import payload_of
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import exact, moment, size


@page("/tenants/{tenant}/retained", title="Retained", scope="retained:read", group=TENANT, icon="push_pin")
async def show(view: View) -> None:
    actions = parts.heading("Retained messages", "by topic")

    async def delete_row(topic: str) -> None:
        await _delete(view, topic, table)

    async def ask_delete() -> None:
        await _ask_delete(view, table)

    table = Table(
        view,
        f"{view.tenant_path}/retained",
        (
            Column("name", "Topic", "code", href=lambda row: f"{view.tenant_path}/retained/{part(row['name'])}"),
            Column("bytes", "Size", "number", size),
            Column("version", "Version", "number"),
            Column("expires", "Expires (UTC)", show=moment),
        ),
        empty=Empty("No topic has a retained message.", command("retain", "list", view.tenant)),
        actions=[Action("delete", "Delete", lambda row: delete_row(str(row["name"])), "retained:write")],
        search="filter",
        hint="Topic Filter, such as a/#",
    )
    if view.may("retained:write"):
        with actions:
            ui.button("Delete by filter", icon="delete", on_click=ask_delete).props("outline no-caps")
            publish.button(view)
    await table.try_load()


@page("/tenants/{tenant}/retained/{topic:path}", title="Retained message", scope="messages:read")
async def show_one(view: View) -> None:
    topic = str(view.path["topic"])
    row = await view.api.get(f"{view.tenant_path}/retained/{part(topic)}")
    parts.heading(topic, f"retained message of {view.tenant}")
    with parts.panel("Message"):
        parts.facts(
            [
                ("QoS", text(row["qos"])),
                ("From", text(row["publisher_client_id"])),
                ("Version", text(row["version"])),
                ("Expires (UTC)", moment(row["expires"])),
                ("Size", size(row["payload_bytes"])),
                ("Payload", payload_of(row)),
            ]
        )


async def _ask_delete(view: View, table: Table) -> None:
    given = {"filter": view.query.get("filter", "")}

    def draw() -> None:
        ui.label("The next step counts what matches; nothing is deleted before you confirm.").classes("io-soft")
        parts.field("Topic Filter", given, "filter", "autofocus")

    async def send() -> object | None:
        return True if await _delete(view, given["filter"], table) else None

    await dialogs.form("Delete retained messages", draw, send, verb="Count")


async def _delete(view: View, topic_filter: str, table: Table) -> bool:
    """Count what matches, ask, and delete it."""
    path = f"{view.tenant_path}/retained"
    found = await view.do(view.api.delete(path, filter=topic_filter, dry_run="true"))
    if found is None:
        return False
    line = command("retain", "delete", view.tenant, "--filter", topic_filter, "--yes")
    question = (
        f"{exact(found['messages'])} retained messages match {topic_filter}. They are deleted, and no copy is left."
    )
    title = "Delete retained messages"
    if not await dialogs.confirm(title, question, verb="Delete", danger=Danger.SEVERE, name=topic_filter, command=line):
        return False
    done = await view.do(view.api.delete(path, filter=topic_filter), "The retained messages are deleted.")
    if done is not None:
        await table.load()
    return done is not None
