"""/webhooks and /tenants/{tenant}/webhooks, and one of them: who gets events as signed HTTP requests, and what came of the last ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import PLATFORM, TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import moment

_READ, _WRITE = "webhooks:read", "webhooks:write"
_EXAMPLES = {True: "client/*, quota/exceeded", False: "alarm/*, node/*"}  # of a tenant, of the platform
_ONCE = "It is shown this once. Receivers check with it that a request is from this hub."
_ATTEMPTS = (
    Column("at", "When (UTC)", show=moment),
    Column("event", "Event", "code"),
    Column("result", "Result", "badge"),
    Column("status", "Status", "number", lambda value: text(value or None)),
    Column("detail", "Detail", "long"),
    Column("node", "Hub", "number"),
    Column("event_id", "Event id", "code"),
)


@page("/webhooks", title="Webhooks", scope=_READ, group=PLATFORM, icon="webhook", key="h")
async def show_platform(view: View) -> None:
    await _Webhooks(view).show()


@page("/webhooks/{name}", title="Webhook", scope=_READ)
async def show_one_of_platform(view: View) -> None:
    await _Webhooks(view).show_one(str(view.path["name"]))


@page("/tenants/{tenant}/webhooks", title="Webhooks", scope=_READ, group=TENANT, icon="webhook")
async def show(view: View) -> None:
    await _Webhooks(view).show()


@page("/tenants/{tenant}/webhooks/{name}", title="Webhook", scope=_READ)
async def show_one(view: View) -> None:
    await _Webhooks(view).show_one(str(view.path["name"]))


def _state(row: Json) -> str:
    return "enabled" if row["is_enabled"] else "disabled"


class _Webhooks:
    """Those of the tenant in the path, or of the platform."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._is_tenant = "tenant" in view.path
        self._path = f"{view.tenant_path}/webhooks" if self._is_tenant else "/webhooks"
        self._may_write = view.may(_WRITE)

    async def show(self) -> None:
        of = "of this tenant's clients" if self._is_tenant else "of all tenants, of hubs and of alarms"
        actions = parts.heading("Webhooks", f"events {of}, as signed HTTP requests")

        async def delete(row: Json) -> None:
            if await self._delete(row):
                await table.reload()

        table = Table(
            self._view,
            self._path,
            (
                Column("name", "Name", href=lambda row: f"{self._path}/{part(row['name'])}"),
                Column("url", "URL", "code"),
                Column("events", "Events"),
                Column("is_enabled", "State", "badge", of=_state),
                Column("changed", "Changed (UTC)", show=moment),
            ),
            empty=Empty("No webhooks yet.", self._line("create", "NAME", "https://..."), _WRITE),
            actions=[
                Action("send", "Send a test", self._test, _WRITE),
                Action("edit", "Change", lambda row: self._change(row, table.reload), _WRITE),
                Action("key", "Replace the secret", self._rotate, _WRITE),
                Action("delete", "Delete", delete, _WRITE),
            ],
        )
        if self._may_write:
            with actions:
                ui.button("Create webhook", icon="add", on_click=lambda: self._create(table)).props(
                    "unelevated no-caps"
                )
        await table.load()

    async def show_one(self, name: str) -> None:
        here = f"{self._path}/{part(name)}"
        row = await self._view.api.get(here)

        async def show_again() -> None:
            ui.navigate.to(here)

        async def delete() -> None:
            if await self._delete(row):
                ui.navigate.to(self._path)

        async def test() -> None:
            await self._test(row)
            await table.reload()

        with parts.heading(name, f"webhook of {self._view.tenant if self._is_tenant else 'the platform'}"):
            parts.badge(_state(row))
            if self._may_write:
                for label, icon, act in (
                    ("Send a test", "send", test),
                    ("Change", "edit", lambda: self._change(row, show_again)),
                    ("Replace the secret", "key", lambda: self._rotate(row)),
                ):
                    ui.button(label, icon=icon, on_click=act).props("outline no-caps")
                ui.button("Delete", icon="delete", color="negative", on_click=delete).props("outline no-caps")
        with parts.panel("Webhook"):
            parts.facts(
                [
                    ("URL", str(row["url"])),
                    ("Events", text(row["events"])),
                    ("Created (UTC)", moment(row["created"])),
                    ("Changed (UTC)", moment(row["changed"])),
                ]
            )
        with parts.panel("Deliveries", note="the last attempts of all hubs, the newest first"):
            table = self._deliveries(name)
            await table.load()

    def _deliveries(self, name: str) -> Table:
        return Table(
            self._view,
            f"{self._path}/{part(name)}/attempts",
            _ATTEMPTS,
            empty=Empty("Nothing has been delivered yet.", self._line("test", name), _WRITE),
            rows=0,
        )

    # --- actions

    async def _create(self, table: Table) -> None:
        given = {"name": "", "url": "", "events": ""}

        def draw() -> None:
            parts.field("Name", given, "name", "autofocus")
            self._draw_fields(given)

        async def send() -> object | None:
            body = {"name": given["name"], "url": given["url"], "events": _events(given["events"]) or ["*"]}
            made = await self._view.do(self._view.api.post(self._path, body), f"Webhook {given['name']} is created.")
            if made is not None:
                await table.load()
                await self._show_secret(made)
            return made

        def line() -> str:
            return self._line("create", given["name"] or "NAME", given["url"] or "URL", *_options(given["events"]))

        await dialogs.form("Create webhook", draw, send, verb="Create", command=line)

    async def _change(self, row: Json, done: Callable[[], Awaitable[object]]) -> None:
        """Ask for changes, and make them; `done` is called then."""
        name = str(row["name"])
        given = {"url": str(row["url"]), "events": text(row["events"]), "is_enabled": bool(row["is_enabled"])}

        def draw() -> None:
            self._draw_fields(given)
            ui.checkbox("Enabled: what waits for a disabled webhook is dropped").bind_value(given, "is_enabled")

        async def send() -> object | None:
            body = {"url": given["url"], "events": _events(str(given["events"])) or ["*"]}
            body["is_enabled"] = given["is_enabled"]
            made = await self._view.do(
                self._view.api.patch(f"{self._path}/{part(name)}", body), f"Webhook {name} is changed."
            )
            if made is not None:
                await done()
            return made

        def line() -> str:
            state = "--enable" if given["is_enabled"] else "--disable"
            return self._line("update", name, "--url", given["url"], *_options(str(given["events"])), state)

        await dialogs.form(f"Change {name}", draw, send, verb="Save", command=line)

    def _draw_fields(self, given: Json) -> None:
        parts.field("URL", given, "url", 'hint="https, at a public address"')
        events = parts.field("Events", given, "events")
        events.props["hint"] = f"with commas, such as {_EXAMPLES[self._is_tenant]}; empty: all"

    async def _test(self, row: Json) -> None:
        name = str(row["name"])
        found = await self._view.do(self._view.api.post(f"{self._path}/{part(name)}:test"))
        if found is None:
            return
        status = f"status {found['status']}" if found["status"] else ""
        said = ": ".join(each for each in (status, str(found["detail"])) if each)
        if found["is_delivered"]:
            parts.notify(f"The receiver has taken the test ({said}).", "positive")
        else:
            parts.notify(f"The test is not delivered ({said}).", "negative")

    async def _rotate(self, row: Json) -> None:
        name = str(row["name"])
        question = "A new secret is made and shown once. For a day requests are signed with both."
        title = f"Replace the secret of {name}"
        if not await dialogs.confirm(title, question, verb="Replace", command=self._line("rotate", name)):
            return
        made = await self._view.do(self._view.api.post(f"{self._path}/{part(name)}:rotate"))
        if made is not None:
            await self._show_secret(made)

    async def _delete(self, row: Json) -> bool:
        name = str(row["name"])
        question = "What waits for it is dropped, and its deliveries are forgotten."
        line = self._line("delete", name, "--yes")
        title = f"Delete webhook {name}"
        if not await dialogs.confirm(title, question, verb="Delete", danger=Danger.SEVERE, name=name, command=line):
            return False
        request = self._view.api.delete(f"{self._path}/{part(name)}")
        return await self._view.do(request, f"Webhook {name} is deleted.") is not None

    async def _show_secret(self, made: Json) -> None:
        await dialogs.secret(f"Secret of {made['name']}", [("Secret", str(made["secret"]))], _ONCE)

    def _line(self, verb: str, *words: object) -> str:
        return command("webhook", verb, *words, *(["--tenant", self._view.tenant] if self._is_tenant else []))


def _events(given: str) -> list[str]:
    return [each.strip() for each in given.split(",") if each.strip()]


def _options(given: str) -> list[str]:
    return [word for each in _events(given) for word in ("--event", each)]
