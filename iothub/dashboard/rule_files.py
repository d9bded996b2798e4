"""Access rules from a file: checked first, all of it; then all of them are added, or none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import events, ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, RefusalError
from iothub.dashboard.checked import Checked
from iothub.dashboard.frame import View
from iothub.dashboard.parts import command

IMPORT_BYTES = 16 << 20
_FORMS = {"csv": "CSV: subject,effect,action,filter", "mosquitto": "an ACL file of Mosquitto"}
_SHOWN = 200  # mistakes


class RuleImport:
    """The dialogue. `done` is called when rules were added."""

    def __init__(self, view: View, done: Callable[[], Awaitable[object]]) -> None:
        self._view = view
        self._done = done
        self._content = b""
        self._form = "csv"
        self._checked = Checked[tuple[bytes, str]](self._send, lambda allowed: self._button.set_enabled(allowed))

    def show(self) -> None:
        with dialogs.dialog(f"Import access rules into {self._view.tenant}", wide=True) as shown:
            ui.label("All rules of the file are added, or none. Those that are there already stay as they are.")
            parts.command_line(command("acl", "import", self._view.tenant, "FILE", "--dry-run"))
            ui.select(_FORMS, label="What it is", value=self._form, on_change=self._chosen).props(
                "outlined dense options-dense"
            ).classes("io-fill")
            parts.file_field("file", "", IMPORT_BYTES, self._uploaded)
            self._result = ui.element("div").classes("io-lines").props("aria-live=polite")
            with ui.row().classes("io-buttons"):
                ui.button("Close", on_click=shown.close).props("flat")
                self._button = ui.button("Import", on_click=self._import).props("unelevated")
                self._button.disable()
        shown.open()

    async def _chosen(self, event: events.ValueChangeEventArguments[str]) -> None:
        self._form = str(event.value)
        if self._content:
            await self._check()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        self._content = await event.file.read()
        await self._check()

    async def _check(self) -> None:
        try:
            found = await self._checked.check((self._content, self._form))
        except RefusalError as refusal:
            self._tell(refusal.detail, *refusal.errors)
            return
        if found is not None:
            self._tell(f"{found['rules']} rules would be added, {found['rules_there_already']} are there already.")

    async def _import(self) -> None:
        try:
            done = await self._checked.do()
        except RefusalError as refusal:
            self._tell(refusal.detail, *refusal.errors)
            return
        if done is not None:
            self._tell(f"{done[1]['rules']} rules are added.")
            await self._done()

    async def _send(self, asked: tuple[bytes, str], is_dry_run: bool) -> Json:
        content, form = asked
        path = f"{self._view.tenant_path}/acl-rules:import"
        words = {"dry_run": str(is_dry_run).lower(), "from": form}
        return dict(await self._view.api.post(path, query=words, text=content))

    def _tell(self, line: str, *rows: str) -> None:
        self._result.clear()
        with self._result:
            ui.label(line).classes("io-strong")
            for row in rows[:_SHOWN]:
                ui.label(row).classes("io-code")
            if len(rows) > _SHOWN:
                ui.label(f"... and {len(rows) - _SHOWN} more").classes("io-soft")
