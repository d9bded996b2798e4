"""/tenants/{tenant}/queues: queues, and the messages in one; payloads are there for who may read them."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import exact, size

_MESSAGES = 50
_PAYLOAD = 300  # characters in a row


def payload_of(row: Json) -> str:
    """Return what a message carries, as text; Base64 where it is none, and why where it cannot be read."""
    found = row.get("payload", row.get("payload_base64", row.get("problem", "")))
    shown = text(found)
    return shown if len(shown) <= _PAYLOAD else f"{shown[:_PAYLOAD]} ..."


@page("/tenants/{tenant}/queues", title="Queues", scope="sessions:read", group=TENANT, icon="inbox")
async def show(view: View) -> None:
    parts.heading("Queues", "what is stored for sessions, by client id")

    async def purge_row(client: str) -> None:
        if await purge(view, client):
            await table.reload()

    table = Table(
        view,
        f"{view.tenant_path}/queues",
        (
            Column("name", "Client id", "code", href=lambda row: f"{view.tenant_path}/sessions/{part(row['name'])}"),
            Column("driver", "Driver"),
            Column("messages", "Messages", "number", exact),
            Column("bytes", "Size", "number", size),
            Column("head", "Head", "number"),
            Column("tail", "Tail", "number"),
        ),
        empty=Empty("No session has a queue.", command("queue", "list", view.tenant)),
        actions=[Action("delete_sweep", "Purge", lambda row: purge_row(str(row["name"])), "sessions:write")],
        search="after",
        hint="Start after this client id",
    )
    await table.try_load()


async def show_messages(view: View, client: str) -> None:
    """Draw the oldest messages of a queue."""
    with parts.panel("Queued messages", note=f"the oldest {_MESSAGES}"):
        if not view.may("messages:read"):
            ui.label("Your role does not see messages: it lacks the scope messages:read.").classes("io-empty")
            return
        await Table(
            view,
            f"{view.tenant_path}/queued-messages/{part(client)}",
            (
                Column("position", "Position", "number"),
                Column("topic", "Topic", "code"),
                Column("delivery_qos", "QoS", "number"),
                Column("payload_bytes", "Size", "number", size),
                Column("payload", "Payload", "code", of=payload_of),
                Column("publisher_client_id", "From", "code"),
                Column("expires", "Expires (UTC)"),
            ),
            empty=Empty("The queue is empty."),
            rows=_MESSAGES,
        ).try_load()


async def purge(view: View, client: str) -> bool:
    """Ask, and remove every message from a queue."""
    line = command("queue", "purge", view.tenant, client, "--yes")
    question = "Every message in the queue is removed, and no copy is left. The session and its subscriptions stay."
    title = f"Purge the queue of {client}"
    if not await dialogs.confirm(title, question, verb="Purge", danger=Danger.SEVERE, name=client, command=line):
        return False
    made = await view.do(view.api.delete(f"{view.tenant_path}/queued-messages/{part(client)}"))
    if made is not None:
        parts.notify(f"{exact(made['messages'])} messages are removed.", "positive")
    return made is not None
