"""/plans, and /plans/{plan}: sets of limits that tenants have."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import PLATFORM, View, page
from iothub.dashboard.limits import read, shown, written
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table
from iothub.dashboard.units import exact, moment


@page("/plans", title="Plans", scope="plans:read", group=PLATFORM, icon="style", key="p")
async def show(view: View) -> None:
    actions = parts.heading("Plans", "sets of limits that tenants have")

    async def delete(row: Json) -> None:
        name = str(row["name"])
        line = command("plan", "delete", name, "--yes")
        question = "No tenant may have it, and no plan may inherit from it."
        if await dialogs.confirm(
            f"Delete plan {name}", question, verb="Delete", danger=Danger.SEVERE, name=name, command=line
        ):
            await view.do(view.api.delete(f"/plans/{part(name)}"), f"Plan {name} is deleted.")
            await table.reload()

    table = Table(
        view,
        "/plans",
        (
            Column("name", "Name", href=lambda row: f"/plans/{part(row['name'])}"),
            Column("parent", "Inherits from"),
            Column("weight", "Weight", "number"),
            Column("", "Limits", "number", exact, lambda row: len(row["limits"])),
            Column("tenants", "Tenants", "number", exact, href=lambda row: f"/tenants?plan={part(row['name'])}"),
            Column("created", "Created (UTC)", show=moment),
        ),
        empty=Empty("No plans.", command("plan", "create", "NAME"), "plans:write"),
        actions=[Action("delete", "Delete", delete, "plans:write", lambda row: not row["tenants"])],
    )
    if view.may("plans:write"):
        with actions:
            ui.button("Create plan", icon="add", on_click=lambda: _create(view)).props("unelevated no-caps")
    await table.load()


@page("/plans/{plan}", title="Plan", scope="plans:read")
async def show_one(view: View) -> None:
    name = str(view.path["plan"])
    row = await view.api.get(f"/plans/{part(name)}")
    parent = f"inherits from {row['parent']}" if row["parent"] else "inherits from none"
    with parts.heading(f"Plan {name}", f"{parent}, weight {row['weight']}"):
        ui.link(f"{exact(row['tenants'])} tenants", f"/tenants?plan={part(name)}")

    async def fetch() -> list[Json]:
        found = await view.api.get(f"/plans/{part(name)}")
        own = [{"name": limit, "value": value, "from": "its own"} for limit, value in found["limits"].items()]
        inherited = [
            {"name": limit, "value": value, "from": "inherited"}
            for limit, value in found["inherited"].items()
            if limit not in found["limits"]
        ]
        return sorted(own + inherited, key=lambda each: str(each["name"]))

    async def edit(limit: Json) -> None:
        await _edit(view, name, str(limit["name"]), table)

    table = Table(
        view,
        "",
        (
            Column("name", "Limit", "code"),
            Column("value", "Value", of=lambda row: shown(str(row["name"]), row["value"])),
            Column("from", "From"),
        ),
        empty=Empty(
            "No limits: everything is unlimited.", command("plan", "set", name, "connections=1000"), "plans:write"
        ),
        actions=[Action("edit", "Change", edit, "plans:write")],
        fetch=fetch,
        rows=0,
    )
    with table.above:
        if view.may("plans:write"):
            ui.button("Set a limit", icon="add", on_click=lambda: _edit(view, name, "", table)).props(
                "outline no-caps dense"
            )
    await table.load()


async def _create(view: View) -> None:
    plans = [str(row["name"]) for row in (await view.api.page("/plans", limit=1000)).items]
    given: Json = {"name": "", "parent": "standard"}

    def draw() -> None:
        parts.field("Name", given, "name", "autofocus")
        ui.select(plans, label="Inherits from").props("outlined dense options-dense").bind_value(given, "parent")

    async def send() -> object | None:
        made = await view.do(view.api.post("/plans", given), f"Plan {given['name']} is created.")
        if made is not None:
            ui.navigate.to(f"/plans/{part(given['name'])}")
        return made

    def line() -> str:
        return command("plan", "create", given["name"] or "NAME", "--from", given["parent"])

    await dialogs.form("Create plan", draw, send, verb="Create", command=line)


async def _edit(view: View, plan: str, limit: str, table: Table) -> None:
    path = f"/plans/{part(plan)}"
    found = await view.do(view.api.show(path))
    if found is None:
        return
    own = found.row["limits"]
    given: Json = {"name": limit, "value": written(own[limit]) if limit in own else ""}

    def draw() -> None:
        if not limit:
            parts.field("Limit", given, "name", "autofocus")
        field = parts.field("Value", given, "value", "clearable")
        field.props["hint"] = "such as 1000, 500/1s,100000/1d or unlimited; empty: as it is inherited"
        tenants = exact(found.row["tenants"])
        ui.label(f"It applies to {tenants} tenants, and to plans that inherit from it, within a second.").classes(
            "io-soft"
        )

    async def send() -> object | None:
        changed = {"limits": {given["name"]: read(given["value"] or "")}}
        made = await view.do(view.api.patch(path, changed, etag=found.etag), f"Plan {plan} is changed.")
        if made is not None:
            await table.load()
        return made

    def line() -> str:
        value = read(given["value"] or "")
        if value is None:
            return command("plan", "unset", plan, given["name"] or "LIMIT")
        return command("plan", "set", plan, f"{given['name'] or 'LIMIT'}={written(value)}")

    await dialogs.form(f"{limit or 'A limit'} of plan {plan}", draw, send, verb="Save", command=line)
