"""/alarms, /nodes, /audit, /settings, /doctor and /session-log: the platform as a whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, RefusalError
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import ADMINISTRATION, DIAGNOSE, PLATFORM, View, page
from iothub.dashboard.pages.changes import audit_columns
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import NOT_FOUND, Action, Column, Table, text
from iothub.dashboard.units import exact, moment


@page("/alarms", title="Alarms", scope="status:read", group=PLATFORM, icon="notifications", key="a")
async def show_alarms(view: View) -> None:
    parts.heading("Alarms", "what is wrong now at any hub, and what to do")
    await Table(
        view,
        "/alarms",
        (
            Column("severity", "Severity", "badge"),
            Column("name", "Name", "code"),
            Column("since", "Since (UTC)", show=moment),
            Column("detail", "Detail", "long"),
            Column("advice", "What to do", "long"),
        ),
        empty=Empty("No alarm is active.", command("status")),
        rows=0,
    ).try_load()


@page("/nodes", title="Hubs", scope="status:read", group=PLATFORM, icon="dns", key="n")
async def show_nodes(view: View) -> None:
    parts.heading("Hubs", "of these accounts, and how the one that is asked is linked to each")

    def then(action: str, question: str, danger: Danger) -> Callable[[Json], Awaitable[object]]:
        async def run(row: Json) -> None:
            if await _act(view, row, action, question, danger):
                await table.reload()

        return run

    drain = "No client connects to it any more, and those that are connected are asked to go to another hub."
    evict = "It is taken out of the cluster for good; the others take over what it had. Only for a hub that is gone."
    table = Table(
        view,
        "/nodes",
        (
            Column("node", "Number", "number"),
            Column("name", "Name"),
            Column("state", "State", "badge"),
            Column("address", "Address", "code"),
            Column("version", "Version"),
            Column("clients", "Clients", "number", exact),
            Column("round_trip_ms", "Round trip (ms)", "number"),
            Column("unacknowledged_bytes", "Not acknowledged (bytes)", "number", exact),
            Column("cause", "Cause"),
        ),
        empty=Empty("No hub runs.", command("serve")),
        actions=[
            Action(
                "output", "Drain", then("drain", drain, Danger.SEVERE), "nodes:write", lambda row: row["state"] == "up"
            ),
            Action(
                "play_arrow",
                "Resume",
                then("resume", "Clients may connect to it again.", Danger.NONE),
                "nodes:write",
                lambda row: row["state"] == "draining",
            ),
            Action(
                "eject",
                "Evict",
                then("evict", evict, Danger.SEVERE),
                "nodes:write",
                lambda row: row["state"] in ("down", "gone") and not row.get("is_self"),
            ),
        ],
        rows=0,
    )
    await table.try_load()


async def _act(view: View, row: Json, action: str, question: str, danger: Danger) -> bool:
    name, number = str(row["name"]), int(row["node"])
    line = command("cluster", action, number, *(["--yes"] if action == "evict" else []))
    title = f"{action.capitalize()} {name}"
    if not await dialogs.confirm(title, question, verb=action.capitalize(), danger=danger, name=name, command=line):
        return False
    return await view.do(view.api.post(f"/nodes/{number}:{action}"), f"{name}: {action} is done.") is not None


@page("/audit", title="Audit log", scope="audit:read", group=ADMINISTRATION, icon="history", key="l")
async def show_audit(view: View) -> None:
    parts.heading("Audit log", "who has changed what, the newest first")
    await Table(
        view,
        "/audit",
        audit_columns(with_tenant=True),
        empty=Empty("Nothing has been changed yet.", command("audit", "list")),
    ).load()


@page("/settings", title="Settings", scope="config:read", group=ADMINISTRATION, icon="tune")
async def show_settings(view: View) -> None:
    actions = parts.heading("Settings", "each value, and where it comes from; secrets are in files that settings name")

    async def reload() -> None:
        question = "The hub reads its file again. What needs a restart keeps its value; a mistake changes nothing."
        if await dialogs.confirm("Reload", question, verb="Reload", command=command("config", "reload")):
            made = await view.do(view.api.post("/config:reload"))
            if made is not None:
                changed = ", ".join(f"{row['name']} ({row['reload']})" for row in made["changed"]) or "nothing"
                parts.notify(f"Reloaded; changed: {changed}.", "positive")

    if view.may("config:write"):
        with actions:
            ui.button("Reload the hub's settings", icon="refresh", on_click=reload).props("outline no-caps")
    features = await view.api.get("/features")
    with parts.panel("Program"):
        parts.facts(
            [
                ("Version", text(features.get("version"))),
                ("Message plane", text(features.get("twin"))),
                ("Python", text(features.get("python"))),
                ("Extras", text(features.get("extras"))),
                ("Drivers", text(features.get("drivers"))),
            ]
        )
    await Table(
        view,
        "/config",
        (Column("name", "Setting", "code"), Column("value", "Value", "code"), Column("origin", "From")),
        empty=Empty("No settings."),
        rows=0,
    ).load()


@page("/doctor", title="Doctor", scope="status:read", group=DIAGNOSE, icon="healing")
async def show_doctor(view: View) -> None:
    parts.heading("Doctor", "checks of accounts, stores, servers, ports, certificates and clock; they change nothing")
    await Table(
        view,
        "/doctor",
        (
            Column("state", "State", "badge", show=lambda value: str(value).lower().replace("fail", "failed")),
            Column("name", "What"),
            Column("text", "Found", "long"),
            Column("advice", "What to do", "long"),
            Column("ms", "ms", "number"),
        ),
        empty=Empty("Nothing was checked.", command("doctor")),
        rows=0,
    ).try_load()


@page("/session-log", title="Session log", scope="status:read", group=DIAGNOSE, icon="timeline")
async def show_session_log(view: View) -> None:
    parts.heading("Session log", "events of sessions by partition, and how far the session states are behind")

    async def fetch() -> list[Json]:
        try:
            return (await view.api.page("/events/lag")).items
        except RefusalError as refusal:
            if refusal.status != NOT_FOUND:
                raise
            return []  # there is no log yet

    await Table(
        view,
        "/events/lag",
        (
            Column("partition", "Partition", "number"),
            Column("begin", "First", "number", exact),
            Column("end", "Last", "number", exact),
            Column("events", "Events", "number", exact),
            Column("applied", "Applied", "number", exact),
            Column("lag", "Behind", "number", exact),
        ),
        empty=Empty("There is no event log yet: the hub makes it.", command("events", "lag")),
        rows=0,
        fetch=fetch,
    ).load()
