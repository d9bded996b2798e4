"""/tenants/{tenant}/traces, and one of them: what selected clients, or the messages of a topic, do at all hubs, as it happens."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from nicegui import ui
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Api, Json, RefusalError, api_for, part
from iothub.dashboard.frame import TENANT, State, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import moment, size

KINDS = ("client", "device", "topic", "ip")
KEPT_LINES = 500  # in the page; the hubs have all of them
_PAGE = 500  # lines of each hub
_POLL_S = 1.0
_LINE_CHARACTERS = 2000
_LINES = (
    Column("time", "When (UTC)"),
    Column("node", "Hub", "number"),
    Column("event", "Event", "badge"),
    Column("facts", "What", "code"),
)
_ELSEWHERE = {"at_ms", "node", "tenant", "event"}  # in a column of their own, or the same in all lines


@page("/tenants/{tenant}/traces", title="Traces", scope="traces:read", group=TENANT, icon="troubleshoot", key="y")
async def show(view: View) -> None:
    about = (
        "what clients and messages do, packet by packet, at all hubs; kept for 24 hours after their end, the newest 5"
    )
    actions = parts.heading("Traces", about)

    async def fetch() -> list[Json]:
        return list(reversed((await view.api.page(f"{view.tenant_path}/traces")).items))

    async def stop(row: Json) -> None:
        if await _stop(view, str(row["name"])):
            await table.reload()

    async def delete(row: Json) -> None:
        if await _delete(view, str(row["name"])):
            await table.reload()

    table = Table(
        view,
        f"{view.tenant_path}/traces",
        (
            Column("name", "Name", "code", href=lambda row: _path(view, row["name"])),
            Column("kind", "Selects"),
            Column("value", "Value", "code"),
            Column("state", "State", "badge"),
            Column("ended", "Ended by"),
            Column("started", "Started (UTC)", show=moment),
            Column("kept_until", "Kept until (UTC)", show=moment),
            Column("bytes", "Size", "number", size),
            Column("nodes", "Hubs"),
        ),
        empty=Empty(
            "There is no trace.", command("trace", "start", view.tenant, "--client", "CLIENT_ID"), "traces:write"
        ),
        actions=[
            Action("stop", "Stop", stop, "traces:write", _is_active),
            Action("delete", "Delete", delete, "traces:write", lambda row: not _is_active(row)),
        ],
        rows=0,
        fetch=fetch,
    )
    await table.load()
    if view.may("traces:write"):
        with actions:
            ui.button("Start a trace", icon="add", on_click=lambda: start(view)).props("unelevated no-caps")


@page("/tenants/{tenant}/traces/{trace}", title="Trace", scope="traces:read")
async def show_one(view: View) -> None:
    name = str(view.path["trace"])
    row = await view.api.get(f"{view.tenant_path}/traces/{part(name)}")
    here = _path(view, name)

    async def stop_here() -> None:
        if await _stop(view, name):
            ui.navigate.to(here)

    async def delete_here() -> None:
        if await _delete(view, name):
            ui.navigate.to(f"{view.tenant_path}/traces")

    with parts.heading(name, f"{row['kind']} {row['value']}"):
        state = parts.badge(str(row["state"]))
        ui.link("Download", f"/trace.jsonl?tenant={part(view.tenant)}&trace={part(name)}").props("download")
        if view.may("traces:write") and _is_active(row):
            ui.button("Stop", icon="stop", on_click=stop_here).props("outline no-caps")
        elif view.may("traces:write"):
            ui.button("Delete", icon="delete", color="negative", on_click=delete_here).props("outline no-caps")
    with parts.panel("Lines", note=f"the last {KEPT_LINES}, as they come") as right:
        with right:
            parts.copy_button(command("trace", "tail", view.tenant, name))
        kept: deque[Json] = deque(maxlen=KEPT_LINES)

        async def fetch() -> list[Json]:
            return list(reversed(kept))

        table = Table(view, "", _LINES, empty=Empty("Nothing has been recorded yet."), fetch=fetch, rows=0)
        await table.load()
    tail = _Tail(view, name, kept, table, state)
    tail.timer = ui.timer(_POLL_S, tail.read)


class _Tail:
    """Lines that are new, once a second, as long as the trace runs and the page is open."""

    def __init__(self, view: View, name: str, kept: deque[Json], table: Table, state: ui.label) -> None:
        self.timer: ui.timer | None = None
        self._view = view
        self._path = f"{view.tenant_path}/traces/{part(name)}/log"
        self._kept = kept
        self._table = table
        self._state = state
        self._after = ""

    async def read(self) -> None:
        """Read what is new; the end of the trace, and a refusal, end this."""
        try:
            found = await self._view.api.page(self._path, limit=_PAGE, after=self._after or None)
        except RefusalError as refusal:
            self._end()
            self._view.tell(refusal)
            return
        self._after = str(found.more["next"])
        self._kept.extend(_shown(line) for line in found.items)
        if found.items:
            await self._table.reload()
        elif not found.more["is_active"]:
            self._state.set_text("ended")
            self._end()

    def _end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


def _shown(line: Json) -> Json:
    """Write a line as columns, short enough for a page."""
    facts = ", ".join(f"{name} {text(value)}" for name, value in line.items() if name not in _ELSEWHERE)
    written = facts if len(facts) <= _LINE_CHARACTERS else f"{facts[:_LINE_CHARACTERS]} ..."
    when = datetime.fromtimestamp(line["at_ms"] / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    return {"time": when, "node": line["node"], "event": line["event"], "facts": written}


async def start(view: View, kind: str = "client", value: str = "") -> None:
    """Ask what is traced, and show the lines."""
    given: Json = {"kind": kind, "value": value, "for_s": 600, "payload_bytes": 0, "has_pings": False}

    def draw() -> None:
        ui.select(list(KINDS), label="Selects by").props("outlined dense options-dense").bind_value(given, "kind")
        parts.field("Client id, device, Topic Filter or address", given, "value", "autofocus")
        ui.number("Seconds", min=1, max=86_400, precision=0).props("outlined dense").bind_value(given, "for_s")
        if view.may("messages:read"):
            ui.number("Bytes of each payload", min=0, max=65_536, precision=0).props("outlined dense").bind_value(
                given, "payload_bytes"
            )
        ui.checkbox("Record PINGREQ and PINGRESP").bind_value(given, "has_pings")

    def body() -> Json:
        return {**given, "for_s": int(given["for_s"] or 0), "payload_bytes": int(given["payload_bytes"] or 0)}

    async def send() -> object | None:
        made = await view.do(view.api.post(f"{view.tenant_path}/traces", body()))
        if made is not None:
            ui.navigate.to(_path(view, made["name"]))
        return made

    def line() -> str:
        asked = body()
        words = ["trace", "start", view.tenant, f"--{asked['kind']}", asked["value"], "--for", f"{asked['for_s']}s"]
        words += ["--payload", asked["payload_bytes"]] if asked["payload_bytes"] else []
        return command(*words, *(["--pings"] if asked["has_pings"] else []))

    await dialogs.form("Start a trace", draw, send, verb="Start", command=line)


async def download(request: Request) -> Response:
    """Answer GET /trace.jsonl?tenant=T&trace=NAME: every line of a trace, with the session of who asks."""
    state: State = request.scope["iothub.dashboard"]
    name = request.query_params.get("trace", "")
    path = f"/tenants/{part(request.query_params.get('tenant', ''))}/traces/{part(name)}"
    api = api_for(state.rest, request)
    try:
        await api.get(path)
    except RefusalError as refusal:
        return PlainTextResponse(refusal.detail, refusal.status)
    sent = {"Content-Disposition": 'attachment; filename="trace.jsonl"', "Cache-Control": "no-store"}
    return StreamingResponse(_written(api, path), 200, sent, "application/jsonl; charset=utf-8")


async def _written(api: Api, path: str) -> AsyncIterator[str]:
    found = await api.page(f"{path}/log", limit=_PAGE)
    while found.items:
        yield "".join(f"{json.dumps(line)}\n" for line in found.items)
        found = await api.page(f"{path}/log", limit=_PAGE, after=found.more["next"])


def _is_active(row: Json) -> bool:
    return bool(row["state"] == "active")


def _path(view: View, name: object) -> str:
    return f"{view.tenant_path}/traces/{part(name)}"


async def _stop(view: View, name: str) -> bool:
    path = f"{view.tenant_path}/traces/{part(name)}:stop"
    return await view.do(view.api.post(path), "The trace is stopped; its lines stay.") is not None


async def _delete(view: View, name: str) -> bool:
    line = command("trace", "delete", view.tenant, name, "--yes")
    if not await dialogs.confirm(f"Delete {name}", "Its lines are deleted at every hub.", verb="Delete", command=line):
        return False
    path = f"{view.tenant_path}/traces/{part(name)}"
    return await view.do(view.api.delete(path), "The trace is deleted.") is not None
