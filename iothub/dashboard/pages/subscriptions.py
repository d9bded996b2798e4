"""/tenants/{tenant}/subscriptions and /share-groups: who gets messages."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import parts, publish
from iothub.dashboard.api import part
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty
from iothub.dashboard.table import Column, Table
from iothub.dashboard.units import exact


@page(
    "/tenants/{tenant}/subscriptions",
    title="Subscriptions",
    scope="sessions:read",
    group=TENANT,
    icon="rss_feed",
    key="b",
)
async def show(view: View) -> None:
    actions = parts.heading("Subscriptions", "of connected clients and of sessions that are away, by client id")
    here = f"{view.tenant_path}/subscriptions"
    chosen = {name: view.query.get(name) or None for name in ("client_id", "group")}
    is_chosen = any(chosen.values())
    table = Table(
        view,
        here,
        (
            Column("client_id", "Client id", "code", href=lambda row: _of_client(view, str(row["client_id"]))),
            Column("is_connected", "State", "badge", of=lambda row: "connected" if row["is_connected"] else "offline"),
            Column("name", "Filter", "code"),
            Column("qos", "QoS", "number"),
            Column("no_local", "No Local"),
        ),
        empty=Empty("No client has a subscription: a SUBSCRIBE makes one."),
        query=chosen,
        search="" if is_chosen else "after",
        hint="Start after this client id",
    )
    with table.above:
        for name, value in chosen.items():
            if value:
                words = {"client_id": "client", "group": "group"}[name]
                ui.link(f"{words} {value}  \u00d7", here).classes("io-badge io-badge-none")
    with actions:
        publish.button(view)
    await table.try_load()


def _of_client(view: View, client: str) -> str:
    return f"{view.tenant_path}/subscriptions?client_id={part(client)}"


@page("/tenants/{tenant}/share-groups", title="Share groups", scope="sessions:read", group=TENANT, icon="call_split")
async def show_groups(view: View) -> None:
    parts.heading("Share groups", "each message goes to one member of a group ($share/GROUP/FILTER)")
    await Table(
        view,
        f"{view.tenant_path}/share-groups",
        (
            Column(
                "name",
                "Group",
                "code",
                href=lambda row: f"{view.tenant_path}/subscriptions?group={part(row['name'])}",
            ),
            Column("filter", "Topic Filter", "code"),
            Column("connected", "Connected members", "number", exact),
            Column("away", "Members away", "number", exact),
        ),
        empty=Empty("No client has a shared subscription: a SUBSCRIBE to $share/GROUP/FILTER makes one."),
    ).try_load()
