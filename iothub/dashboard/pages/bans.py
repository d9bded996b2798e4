"""/tenants/{tenant}/bans: devices, client ids and addresses that are kept out, and who failed to log in too often."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table
from iothub.dashboard.units import moment

_TIMES = {None: "until it is removed", 600: "10 minutes", 3600: "1 hour", 86_400: "1 day", 604_800: "1 week"}
_WORDS = {600: "10m", 3600: "1h", 86_400: "1d", 604_800: "7d"}


@page("/tenants/{tenant}/bans", title="Bans", scope="bans:read", group=TENANT, icon="gpp_bad")
async def show(view: View) -> None:
    actions = parts.heading("Bans")
    path = f"{view.tenant_path}/bans"

    async def lift(row: Json) -> None:
        line = command("ban", "remove", view.tenant, row["kind"], row["value"])
        if await dialogs.confirm(f"Lift the ban of {row['value']}", "It may connect again.", verb="Lift", command=line):
            await view.do(view.api.delete(path, kind=row["kind"], value=row["value"]), "The ban is lifted.")
            await table.reload()

    table = Table(
        view,
        path,
        (
            Column("kind", "Kind"),
            Column("value", "Who", "code"),
            Column("reason", "Reason"),
            Column("until", "Until (UTC)", show=moment),
            Column("created", "Since (UTC)", show=moment),
        ),
        empty=Empty(
            "Nobody is banned.", command("ban", "add", view.tenant, "device", "NAME", "--for", "1h"), "bans:write"
        ),
        actions=[Action("lock_open", "Lift", lift, "bans:write")],
    )
    await table.load()
    await _failures(view)
    if view.may("bans:write"):
        with actions:
            ui.button("Add ban", icon="add", on_click=lambda: _add(view, table)).props("unelevated no-caps")


async def _failures(view: View) -> None:
    """What the hubs have banned by themselves. Without a hub the panel says so, and the rest of the page stays."""

    async def forget(row: Json) -> None:
        device = str(row["value"])
        line = command("ban", "remove", view.tenant, "failures", device)
        if await dialogs.confirm(
            f"Forget failed logins of {device}", "It may try again at once.", verb="Forget", command=line
        ):
            path = f"{view.tenant_path}/failure-bans/{part(device)}"
            await view.do(view.api.delete(path, address=row.get("address")), "The failed logins are forgotten.")
            await table.reload()

    with parts.panel("After failed logins", note="made by the hubs"):
        table = Table(
            view,
            f"{view.tenant_path}/failure-bans",
            (
                Column("value", "Device", "code"),
                Column("address", "Address", "code"),
                Column("reason", "Reason"),
                Column("until", "Until (UTC)", show=moment),
            ),
            empty=Empty("None."),
            actions=[Action("restart_alt", "Forget", forget, "bans:write")],
            rows=0,
        )
        await table.try_load()


async def _add(view: View, table: Table) -> None:
    given: Json = {"kind": "device", "value": "", "for_s": 3600, "reason": ""}

    def draw() -> None:
        kinds = {"device": "Device", "client_id": "Client id", "address": "Address or network"}
        ui.select(kinds, label="Kind").props("outlined dense options-dense").bind_value(given, "kind")
        parts.field("Who", given, "value", "autofocus")
        ui.select(_TIMES, label="For").props("outlined dense options-dense").bind_value(given, "for_s")
        parts.field("Reason", given, "reason")

    async def send() -> object | None:
        body = {name: value for name, value in given.items() if value is not None}
        made = await view.do(view.api.post(f"{view.tenant_path}/bans", body), f"{given['value']} is banned.")
        if made is not None:
            await table.load()
        return made

    def line() -> str:
        time = ["--for", _WORDS[given["for_s"]]] if given["for_s"] else []
        reason = ["--reason", given["reason"]] if given["reason"] else []
        return command("ban", "add", view.tenant, given["kind"], given["value"] or "VALUE", *time, *reason)

    await dialogs.form("Add ban", draw, send, verb="Ban", command=line)
