"""/tenants/{tenant}/groups: groups of devices, which rules may name."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table
from iothub.dashboard.units import exact


@page("/tenants/{tenant}/groups", title="Groups", scope="devices:read", group=TENANT, icon="group_work")
async def show(view: View) -> None:
    actions = parts.heading("Groups")
    path = f"{view.tenant_path}/groups"

    async def delete(row: Json) -> None:
        name = str(row["name"])
        question = "The rules that name it are removed as well. Its devices stay."
        line = command("group", "delete", view.tenant, name, "--yes")
        if await dialogs.confirm(f"Delete group {name}", question, verb="Delete", command=line):
            await view.do(view.api.delete(f"{path}/{part(name)}"), f"Group {name} is deleted.")
            await table.reload()

    async def join(row: Json) -> None:
        await _change_members(view, str(row["name"]), table)

    table = Table(
        view,
        path,
        (
            Column("name", "Name", href=lambda row: f"{view.tenant_path}/rules?subject={part('@' + str(row['name']))}"),
            Column("", "Devices", "number", exact, lambda row: len(row["devices"])),
            Column("devices", "Members"),
        ),
        empty=Empty(
            "No groups yet: a rule of a group applies to all its devices.",
            command("group", "create", view.tenant, "NAME"),
            "devices:write",
        ),
        actions=[
            Action("group_add", "Change members", join, "devices:write"),
            Action("delete", "Delete", delete, "devices:write"),
        ],
    )
    if view.may("devices:write"):
        with actions:
            ui.button("Create group", icon="add", on_click=lambda: _create(view, table)).props("unelevated no-caps")
    await table.load()


async def _create(view: View, table: Table) -> None:
    given: Json = {"name": ""}

    async def send() -> object | None:
        made = await view.do(view.api.post(f"{view.tenant_path}/groups", given), f"Group {given['name']} is created.")
        if made is not None:
            await table.load()
        return made

    await dialogs.form(
        "Create group",
        lambda: parts.field("Name", given, "name", "autofocus"),
        send,
        verb="Create",
        command=lambda: command("group", "create", view.tenant, given["name"] or "NAME"),
    )


async def _change_members(view: View, group: str, table: Table) -> None:
    given: Json = {"device": "", "action": "Add"}

    def draw() -> None:
        parts.field("Device", given, "device", "autofocus")
        ui.radio(["Add", "Take out"], value="Add").props("inline").bind_value(given, "action")

    async def send() -> object | None:
        path = f"{view.tenant_path}/groups/{part(group)}/devices/{part(given['device'])}"
        is_added = given["action"] == "Add"
        done = f"{given['device']} is {'in' if is_added else 'no longer in'} {group}."
        made = await view.do(view.api.put(path) if is_added else view.api.delete(path), done)
        if made is not None:
            await table.reload()
        return made

    def line() -> str:
        verb = "join" if given["action"] == "Add" else "leave"
        return command("group", verb, view.tenant, group, given["device"] or "DEVICE")

    await dialogs.form(f"Members of {group}", draw, send, verb="Do it", command=line)
