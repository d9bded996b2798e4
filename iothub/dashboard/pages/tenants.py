"""/tenants: all tenants, and what can be done with one."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from iothub.dashboard import dialogs, parts, tenant_actions, tenant_files
from iothub.dashboard.api import Json, part
from iothub.dashboard.frame import PLATFORM, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.sampler import Sampler
from iothub.dashboard.table import Column, Table
from iothub.dashboard.units import count, moment


@page("/tenants", title="Tenants", scope="tenants:list", group=PLATFORM, icon="apartment", key="t")
async def show(view: View) -> None:
    actions = parts.heading("Tenants")
    plan = view.query.get("plan")
    table = Table(
        view,
        "/tenants",
        _columns(view.state.sampler),
        empty=Empty(
            "No tenants yet: each has devices, rules and limits of its own.",
            command("tenant", "create", "NAME"),
            "tenants:write",
        ),
        actions=tenant_actions.of_rows(view, lambda: table.reload()),
        query={"plan": plan},
        search="prefix",
        hint="Name begins with",
    )
    with table.above:
        if plan:
            ui.link(f"plan {plan}  \u00d7", "/tenants").classes("io-badge io-badge-none")
    with actions:
        if view.may("tenants:write"):
            ui.button(
                "Import", icon="upload_file", on_click=lambda: tenant_files.Import(view, table.load).show()
            ).props("outline no-caps")
            ui.button(
                "Apply a file", icon="checklist", on_click=lambda: tenant_files.Apply(view, table.load).show()
            ).props("outline no-caps")
            ui.button("Create tenant", icon="add", on_click=lambda: _create(view, table)).props("unelevated no-caps")
    await table.load()


def _columns(sampler: Sampler) -> list[Column]:
    """What REST lists, and beside it the last numbers of the sampler."""

    def figure(name: str) -> Callable[[Json], float | None]:
        return lambda row: sampler.latest(str(row["name"])).get(name)

    return [
        Column("name", "Name", href=lambda row: f"/tenants/{part(row['name'])}"),
        Column("display_name", "Display name"),
        Column("state", "State", "badge"),
        Column("plan", "Plan", href=lambda row: f"/plans/{part(row['plan'])}"),
        Column("", "Connections", "number", count, figure("connections")),
        Column("", "In /s", "number", count, figure("received")),
        Column("", "Out /s", "number", count, figure("delivered")),
        Column("", "Drops /s", "number", count, figure("dropped")),
        Column("is_protected", "Protected"),
        Column("created", "Created (UTC)", show=moment),
    ]


async def _create(view: View, table: Table) -> None:
    plans = [str(row["name"]) for row in (await view.api.page("/plans", limit=1000)).items]
    given: dict[str, object] = {}

    def draw() -> None:
        name = ui.input("Name").props("outlined dense autofocus").bind_value_to(given, "name")
        name.props["hint"] = "lower-case letters, digits and hyphens; it never changes"
        ui.input("Display name").props("outlined dense").bind_value_to(given, "display_name")
        ui.select(plans, value="standard", label="Plan").props("outlined dense options-dense").bind_value_to(
            given, "plan"
        )
        ui.checkbox("Closed: without the rule that opens all topics to all devices").bind_value_to(given, "is_closed")

    def body() -> Json:
        return {name: value for name, value in given.items() if value not in (None, "", False)}

    async def send() -> object | None:
        made = await view.do(view.api.post("/tenants", body()), f"Tenant {given.get('name')} is created.")
        if made is not None:
            ui.navigate.to(f"/tenants/{part(given['name'])}")
        return made

    def line() -> str:
        words = ["tenant", "create", given.get("name") or "NAME", "--plan", given.get("plan")]
        return command(*words, *(["--closed"] if given.get("is_closed") else []))

    await dialogs.form("Create tenant", draw, send, verb="Create", command=line)
