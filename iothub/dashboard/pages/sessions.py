"""/tenants/{tenant}/sessions, and one of them: persistent sessions, connected or not."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.pages.clients import subscriptions
from iothub.dashboard.pages.queues import purge, show_messages
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import exact, moment, size


def _state(row: Json) -> str:
    return "connected" if row["is_connected"] else "offline"


@page("/tenants/{tenant}/sessions", title="Sessions", scope="sessions:read", group=TENANT, icon="hub", key="e")
async def show(view: View) -> None:
    parts.heading("Persistent sessions", "by client id")

    async def discard_row(client: str) -> None:
        if await _discard(view, client):
            await table.reload()

    table = Table(
        view,
        f"{view.tenant_path}/sessions",
        (
            Column("name", "Client id", "code", href=lambda row: f"{view.tenant_path}/sessions/{part(row['name'])}"),
            Column("is_connected", "State", "badge", of=_state),
            Column("device", "Device", href=lambda row: f"{view.tenant_path}/devices/{part(row['device'])}"),
            Column("version", "MQTT"),
            Column("subscriptions", "Subscriptions", "number", exact),
            Column("queued_messages", "Queued", "number", exact),
            Column("queued_bytes", "Size", "number", size),
            Column("expires", "Expires (UTC)", show=moment),
        ),
        empty=Empty("No client has a persistent session.", command("session", "list", view.tenant)),
        actions=[Action("delete", "Discard", lambda row: discard_row(str(row["name"])), "sessions:write")],
        search="after",
        hint="Start after this client id",
    )
    await table.try_load()


@page("/tenants/{tenant}/sessions/{client_id:path}", title="Session", scope="sessions:read")
async def show_one(view: View) -> None:
    client = str(view.path["client_id"])
    row = await view.api.get(f"{view.tenant_path}/sessions/{part(client)}")
    here = f"{view.tenant_path}/sessions"

    async def discard_here() -> None:
        if await _discard(view, client):
            ui.navigate.to(here)

    async def purge_here() -> None:
        if await purge(view, client):
            ui.navigate.to(f"{here}/{part(client)}")

    with parts.heading(client, f"session of {view.tenant}"):
        parts.badge(_state(row))
        if view.may("sessions:write"):
            ui.button("Purge the queue", icon="delete_sweep", on_click=purge_here).props("outline no-caps")
            ui.button("Discard", color="negative", on_click=discard_here).props("outline no-caps")
    with parts.grid():
        with parts.panel("Session"):
            parts.facts(
                [
                    ("Device", text(row["device"])),
                    ("MQTT", text(row["version"])),
                    ("Created (UTC)", moment(row["created"])),
                    ("Connected (UTC)", moment(row["connected"])),
                    ("Disconnected (UTC)", moment(row["disconnected"])),
                    ("Why", text(row["disconnect_reason"])),
                    ("Session Expiry Interval (s)", text(row["session_expiry_s"])),
                    ("Hub", text(row["node"])),
                    ("Will", text(row["will"])),
                ]
            )
        with parts.panel("Queue"):
            parts.facts(
                [
                    ("Driver", text(row["queue_driver"])),
                    ("Messages", exact(row["queued_messages"])),
                    ("Size", size(row["queued_bytes"])),
                    ("Queue id", text(row["queue_id"])),
                ]
            )
    with parts.panel("Subscriptions"):
        await subscriptions(view, row["subscriptions"]).load()
    await show_messages(view, client)


async def _discard(view: View, client: str) -> bool:
    line = command("session", "discard", view.tenant, client, "--yes")
    question = "Its connection is closed; its subscriptions and its queued messages are deleted."
    title = f"Discard the session of {client}"
    if not await dialogs.confirm(title, question, verb="Discard", danger=Danger.SEVERE, name=client, command=line):
        return False
    path = f"{view.tenant_path}/sessions/{part(client)}"
    return await view.do(view.api.delete(path), f"The session of {client} is discarded.") is not None
