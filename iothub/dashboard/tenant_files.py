"""Tenants as files: the accounts of one that is there, a new one that is made of such a file, and a file that says how all are to be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

from nicegui import events, ui

from iothub.base.documents import read_document, read_json
from iothub.base.errors import ConfigError
from iothub.dashboard import dialogs, parts, secret_files
from iothub.dashboard.api import Json, RefusalError, part
from iothub.dashboard.checked import Checked
from iothub.dashboard.frame import View
from iothub.dashboard.parts import command
from iothub.rest.edge import IMPORT_BYTES

YAML_BYTES = 1 << 20  # a large file is an export, and that is JSON
_DOCUMENTS = ".yaml,.yml,.json,application/yaml,application/json"
_SHOWN = 200  # lines of an answer
_CONTENT = "devices, groups, rules, limits, bans, token issuers and streams; no sessions and no messages"


async def export(view: View, name: str) -> None:
    """Ask, and hand the file to the browser."""
    text = f"The file has the tenant's settings, {_CONTENT}. It has password hashes: protect it as the database itself."
    line = command("tenant", "export", name)
    if not await dialogs.confirm(f"Export {name}", text, verb="Export", danger=dialogs.Danger.NONE, command=line):
        return
    found = await view.do(view.api.post(f"/tenants/{part(name)}:export"), f"Tenant {name} is exported.")
    if found is not None:
        ui.download.content(json.dumps(found, indent=1), f"{name}.json", "application/json")


class Import:
    """A file is checked when it is there; then a tenant is made of it, or nothing."""

    def __init__(self, view: View, done: Callable[[], Awaitable[object]]) -> None:
        self._view = view
        self._done = done
        self._content: Json | None = None
        self._checked = Checked[tuple[str, Json]](self._send, lambda allowed: self._button.set_enabled(allowed))

    def show(self) -> None:
        with dialogs.dialog("Import a tenant", wide=True) as shown:
            ui.label(f"A file of an export: {_CONTENT}. All of it is imported, or nothing.")
            parts.command_line(command("tenant", "import", "FILE", "--dry-run"))
            self._name = (
                ui.input("Name", on_change=self._checked.forget).props("outlined dense autofocus").classes("io-fill")
            )
            self._name.props["hint"] = "of the new tenant"
            parts.file_field("JSON file", ".json,application/json", IMPORT_BYTES, self._uploaded)
            self._result = ui.element("div").classes("io-lines").props("aria-live=polite")
            with ui.row().classes("io-buttons"):
                ui.button("Close", on_click=shown.close).props("flat")
                ui.button("Check", on_click=self._check).props("outline")
                self._button = ui.button("Import", on_click=self._import).props("unelevated")
                self._button.disable()
        shown.open()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        try:
            self._content = await _read_json(event)
        except ValueError as error:
            self._tell(str(error))
            return
        said = self._content.get("tenant")
        self._name.set_value(self._name.value or (str(said.get("name", "")) if isinstance(said, dict) else ""))
        await self._check()

    async def _check(self) -> None:
        if self._content is None:
            self._tell("Choose a file.")
            return
        asked = (str(self._name.value or ""), self._content)
        try:
            found = await self._checked.check(asked)
        except RefusalError as refusal:
            self._tell(refusal.detail, refusal.errors)
            return
        if found is not None:
            self._tell(f"Tenant {asked[0]} with {found['devices']} devices would be made.", _left_out(found))

    async def _import(self) -> None:
        try:
            done = await self._checked.do()
        except RefusalError as refusal:
            self._tell(refusal.detail, refusal.errors)
            return
        if done is not None:
            (name, _), found = done
            self._tell(f"Tenant {name} is made, with {found['devices']} devices.", _left_out(found))
            with self._result:
                ui.link("Show it", f"/tenants/{part(name)}")
            await self._done()

    async def _send(self, asked: tuple[str, Json], is_dry_run: bool) -> Json:
        name, content = asked
        path = f"/tenants/{part(name or '-')}:import"
        return dict(await self._view.api.post(path, content, query={"dry_run": str(is_dry_run).lower()}))

    def _tell(self, line: str, more: Sequence[str] = ()) -> None:
        _tell(self._result, line, more)


class Apply:
    """A file says how tenants and plans are to be: what would change is shown first."""

    def __init__(self, view: View, done: Callable[[], Awaitable[object]]) -> None:
        self._view = view
        self._done = done
        self._content: Json | None = None
        self._checked = Checked[tuple[Json, bool]](self._send, lambda allowed: self._button.set_enabled(allowed))

    def show(self) -> None:
        with dialogs.dialog("Apply a file", wide=True) as self._shown:
            ui.label("Tenants and plans become what the file describes; what it does not name stays.")
            parts.command_line(command("apply", "-f", "FILE", "--dry-run"))
            self._prunes = ui.checkbox("Delete what a list of the file does not name any more", on_change=self._check)
            parts.file_field("YAML or JSON file", _DOCUMENTS, IMPORT_BYTES, self._uploaded)
            self._result = ui.element("div").classes("io-lines").props("aria-live=polite")
            self._secrets = ui.element("div").classes("io-lines")
            with ui.row().classes("io-buttons"):
                self._close = ui.button("Close", on_click=self._shown.close).props("flat")
                self._button = ui.button("Apply", on_click=self._apply).props("unelevated")
                self._button.disable()
        self._shown.open()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        try:
            self._content = await _read_document(event)
        except ValueError as error:
            _tell(self._result, str(error))
            return
        await self._check()

    async def _check(self) -> None:
        if self._content is None:
            return
        try:
            found = await self._checked.check((self._content, bool(self._prunes.value)))
        except RefusalError as refusal:
            _tell(self._result, refusal.detail, refusal.errors)
            return
        if found is None:
            return
        steps = [_step(each) for each in found["steps"]]
        _tell(self._result, f"{len(steps)} changes would be made." if steps else "Nothing would change.", steps)
        if not steps:
            self._checked.forget()

    async def _apply(self) -> None:
        try:
            done = await self._checked.do()
        except RefusalError as refusal:
            _tell(self._result, refusal.detail, refusal.errors)
            return
        if done is None:
            return
        _, found = done
        problem, secrets = found["problem"], found["secrets"]
        if secret_files.is_left(self._shown, secrets):
            return
        if problem is None:
            _tell(self._result, "Applied.", [_step(each) for each in found["steps"]])
        else:
            _tell(self._result, f"Ended before it was done: {problem['detail']}", ["What was done before it stays."])
        with self._secrets:
            secret_files.offer(self._shown, self._close, secrets)
        await self._done()

    async def _send(self, asked: tuple[Json, bool], is_dry_run: bool) -> Json:
        content, prunes = asked
        words = {"dry_run": str(is_dry_run).lower(), "prune": str(prunes).lower()}
        return dict(await self._view.api.post("/tenants:apply", content, query=words))


async def _read_json(event: events.UploadEventArguments) -> Json:
    """Raises ValueError: it is no JSON object; the text is for the page."""
    try:
        return _named(read_json(await event.file.read()))
    except ConfigError as error:
        raise ValueError(f"The file is not taken: {error}.") from None


async def _read_document(event: events.UploadEventArguments) -> Json:
    """Raises ValueError: it is no object in YAML or JSON; the text is for the page."""
    content = await event.file.read()
    try:
        return _named(await asyncio.to_thread(read_document, content, YAML_BYTES))
    except ConfigError as error:
        raise ValueError(f"The file is not taken: {error}.") from None


def _named(found: object) -> Json:
    if not isinstance(found, dict):
        raise ValueError("The file is not an object with names and values.")
    return found


def _tell(result: ui.element, line: str, more: Sequence[str] = ()) -> None:
    result.clear()
    with result:
        ui.label(line).classes("io-strong")
        for each in more[:_SHOWN]:
            ui.label(each)
        if len(more) > _SHOWN:
            ui.label(f"... and {len(more) - _SHOWN} more").classes("io-soft")


def _step(row: Json) -> str:
    return " ".join(str(row[name]) for name in ("action", "what", "tenant", "name", "change") if row.get(name))


def _left_out(found: Json) -> list[str]:
    """Say what needs a new secret: that of another hub cannot be read here."""
    kinds = {"without_secret": "Devices", "issuers_without_secret": "Token issuers"}
    return [f"{kind} that need a new secret: {', '.join(found[name])}" for name, kind in kinds.items() if found[name]]
