"""/tenants/{tenant}/clients, and one of them: who is connected now, at all hubs."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import part
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.pages import explain, traces
from iothub.dashboard.pages.queues import show_messages
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import exact, moment, size

SUBSCRIPTIONS = (
    Column("name", "Filter", "code"),
    Column("qos", "QoS", "number"),
    Column("no_local", "No Local"),
)


@page("/tenants/{tenant}/clients", title="Clients", scope="clients:read", group=TENANT, icon="sensors", key="c")
async def show(view: View) -> None:
    parts.heading("Connected clients", "of all hubs, by client id")

    async def kick_row(client: str) -> None:
        if await kick(view, client):
            await table.reload()

    table = Table(
        view,
        f"{view.tenant_path}/clients",
        (
            Column("name", "Client id", "code", href=lambda row: f"{view.tenant_path}/clients/{part(row['name'])}"),
            Column("device", "Device", href=lambda row: f"{view.tenant_path}/devices/{part(row['device'])}"),
            Column("address", "Address", "code"),
            Column("version", "MQTT"),
            Column("connected", "Connected (UTC)", show=moment),
            Column("subscriptions", "Subscriptions", "number", exact),
            Column("queued_messages", "Queued", "number", exact),
            Column("in_flight_messages", "In flight", "number", exact),
            Column("node", "Hub", "number"),
        ),
        empty=Empty("No client is connected.", command("client", "list", view.tenant)),
        actions=[Action("logout", "Kick", lambda row: kick_row(str(row["name"])), "clients:write")],
        search="after",
        hint="Start after this client id",
    )
    await table.try_load()
    await _slow(view)


async def _slow(view: View) -> None:
    """Show who reads too slowly, or does not acknowledge."""
    with parts.panel("Most messages waiting", note="at most ten clients that are connected"):
        choice = ui.toggle({"queue": "not sent yet", "in-flight": "not acknowledged"}, value="queue")
        choice.props(parts.TOGGLE)
        slow = Table(
            view,
            f"{view.tenant_path}/clients:top",
            (
                Column("name", "Client id", "code", href=lambda row: f"{view.tenant_path}/clients/{part(row['name'])}"),
                Column("device", "Device", href=lambda row: f"{view.tenant_path}/devices/{part(row['device'])}"),
                Column("queued_messages", "Queued", "number", exact),
                Column("in_flight_messages", "In flight", "number", exact),
                Column("unsent_bytes", "Not read yet", "number", size),
                Column("node", "Hub", "number"),
            ),
            empty=Empty("Nobody has messages waiting.", command("client", "top", view.tenant)),
            query={"by": "queue"},
            is_filter=False,
            rows=0,
        )
    choice.on_value_change(lambda event: slow.filter(by=event.value))
    await slow.try_load()


@page("/tenants/{tenant}/clients/{client_id:path}", title="Client", scope="clients:read")
async def show_one(view: View) -> None:
    client = str(view.path["client_id"])
    row = await view.api.get(f"{view.tenant_path}/clients/{part(client)}")

    async def kick_here() -> None:
        if await kick(view, client):
            ui.navigate.to(f"{view.tenant_path}/clients")

    with parts.heading(client, f"client of {view.tenant}"):
        parts.badge("connected")
        if view.may("rules:read"):
            ui.link("Explain", explain.link_of(view, row | {"client_id": client}))
        if view.may("traces:write"):
            ui.button("Trace", icon="troubleshoot", on_click=lambda: traces.start(view, "client", client)).props(
                "outline no-caps"
            )
        if view.may("clients:write"):
            ui.button("Kick", icon="logout", on_click=kick_here).props("outline no-caps")
    with parts.grid():
        with parts.panel("Connection"):
            parts.facts(
                [
                    ("Device", text(row["device"])),
                    ("Address", text(row["address"])),
                    ("Listener", text(row["listener"])),
                    ("MQTT", text(row["version"])),
                    ("Connected (UTC)", moment(row["connected"])),
                    ("Keep Alive", f"{row['keep_alive_s']} s"),
                    ("Hub", text(row["node"])),
                ]
            )
        with parts.panel("Session"):
            parts.facts(
                [
                    ("Persistent", text(row["is_persistent"])),
                    ("Session Expiry Interval (s)", text(row["session_expiry_s"])),
                    ("Queued messages", exact(row["queued_messages"])),
                    ("In flight", exact(row["in_flight_messages"])),
                    ("Not sent yet", size(row["unsent_bytes"])),
                ]
            )
            if row["is_persistent"]:
                ui.link("Session and its queue", f"{view.tenant_path}/sessions/{part(client)}")
    with parts.panel("Subscriptions"):
        await subscriptions(view, row["subscriptions"]).load()
    if row["is_persistent"]:
        await show_messages(view, client)


def subscriptions(view: View, rows: list[dict[str, object]]) -> Table:
    """Draw subscriptions that were read already."""

    async def fetch() -> list[dict[str, object]]:
        return rows

    return Table(view, "", SUBSCRIPTIONS, empty=Empty("It has no subscription."), fetch=fetch, rows=0)


async def kick(view: View, client: str) -> bool:
    """Ask, and close the connection of a client."""
    line = command("client", "kick", view.tenant, client, "--yes")
    question = (
        "Its connection is closed and its Will Message is published. Its session stays, and it may connect again."
    )
    if not await dialogs.confirm(f"Kick {client}", question, verb="Kick", command=line):
        return False
    path = f"{view.tenant_path}/clients/{part(client)}:kick"
    return await view.do(view.api.post(path), f"{client} is disconnected.") is not None
