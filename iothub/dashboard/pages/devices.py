"""/tenants/{tenant}/devices, and /devices/{device}: accounts of a tenant, with their credentials, one by one or as a file."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from nicegui import events, ui

from iothub.dashboard import dialogs, parts, secret_files
from iothub.dashboard.api import Json, RefusalError, part
from iothub.dashboard.checked import Checked
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.limits import limit_columns, limit_rows
from iothub.dashboard.pages.quotas import edit_limit
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import moment
from iothub.rest.models import DeviceLimitsPatch

IMPORT_BYTES = 16 << 20
_SHOWN = 200  # names and mistakes of an import
_ONCE = "It is shown this once: only a hash of it is stored."


def _state(row: Json) -> str:
    return "enabled" if row["is_enabled"] else "disabled"


@page("/tenants/{tenant}/devices", title="Devices", scope="devices:read", group=TENANT, icon="memory", key="d")
async def show(view: View) -> None:
    actions = parts.heading("Devices")
    table = Table(
        view,
        f"{view.tenant_path}/devices",
        (
            Column("name", "Name", href=lambda row: f"{view.tenant_path}/devices/{part(row['name'])}"),
            Column("is_enabled", "State", "badge", of=_state),
            Column("credential", "Credential"),
            Column("groups", "Groups"),
            Column("created", "Created (UTC)", show=moment),
            Column("changed", "Changed (UTC)", show=moment),
        ),
        empty=Empty(
            "No devices yet: each logs in with a name and a secret.",
            command("device", "create", view.tenant, "NAME"),
            "devices:write",
        ),
        actions=[
            Action("key", "Rotate the secret", lambda row: _rotate(view, str(row["name"])), "devices:write"),
            Action(
                "block",
                "Disable",
                lambda row: _then(table, _disable(view, str(row["name"]))),
                "devices:write",
                _is_enabled,
            ),
            Action(
                "check_circle",
                "Enable",
                lambda row: _then(table, _enable(view, str(row["name"]))),
                "devices:write",
                lambda row: not row["is_enabled"],
            ),
            Action("delete", "Delete", lambda row: _then(table, _delete(view, str(row["name"]))), "devices:write"),
        ],
        search="prefix",
        hint="Name begins with",
    )
    if view.may("devices:write"):
        with actions:
            ui.button("Import", icon="upload_file", on_click=lambda: _Import(view, table).show()).props(
                "outline no-caps"
            )
            ui.button("Create device", icon="add", on_click=lambda: _create(view, table)).props("unelevated no-caps")
    await table.load()


def _is_enabled(row: Json) -> bool:
    return bool(row["is_enabled"])


async def _then(table: Table, action: Any) -> None:
    if await action:
        await table.reload()


@page("/tenants/{tenant}/devices/{device}", title="Device", scope="devices:read")
async def show_one(view: View) -> None:
    name = str(view.path["device"])
    path = f"{view.tenant_path}/devices/{part(name)}"
    row = await view.api.get(path)
    actions = parts.heading(name, f"{view.tenant}/{name} is its user name")
    with actions:
        parts.badge(_state(row))
        if view.may("devices:write"):
            _buttons(view, name, row)
    with parts.grid():
        with parts.panel("Account"):
            parts.facts(
                [
                    ("Credential", str(row["credential"])),
                    ("Groups", text(row["groups"])),
                    ("Certificate", text(row.get("certificate_subject"))),
                    ("Created (UTC)", moment(row["created"])),
                    ("Changed (UTC)", moment(row["changed"])),
                ]
            )
        with parts.panel("See also"), ui.element("div").classes("io-lines"):
            ui.link("Rules that apply to it", f"{view.tenant_path}/rules?subject={part(name)}")
            ui.link("Connected clients", f"{view.tenant_path}/clients")
            ui.link("Rejected clients", f"{view.tenant_path}/rejected")
    if view.may("quotas:read"):
        with parts.panel("Limits in force"):
            await _limits(view, name, path).load()


@cache
def _own_limits() -> frozenset[str]:
    """Return the limits that a device may have of its own."""
    return frozenset(DeviceLimitsPatch.model_json_schema()["properties"]["limits"]["properties"])


def _limits(view: View, name: str, path: str) -> Table:
    async def edit(row: Json) -> None:
        await edit_limit(view, path, str(row["name"]), table, name)

    table = Table(
        view,
        "",
        limit_columns(with_usage=False),
        empty=Empty("No limits."),
        actions=[Action("edit", "Change", edit, "quotas:write", lambda row: row["name"] in _own_limits())],
        fetch=lambda: limit_rows(view, f"{path}/quotas:effective"),
        rows=0,
    )
    return table


def _buttons(view: View, name: str, row: Json) -> None:
    async def go(action: Any, target: str) -> None:
        if await action(view, name):
            ui.navigate.to(target)

    here = f"{view.tenant_path}/devices/{part(name)}"
    ui.button("Rotate the secret", icon="key", on_click=lambda: _rotate(view, name)).props("outline no-caps")
    ui.button("Set a password", icon="password", on_click=lambda: _set_password(view, name)).props("outline no-caps")
    ui.button("Other login", on_click=lambda: _set_login(view, name)).props("outline no-caps")
    change = _disable if row["is_enabled"] else _enable
    ui.button("Disable" if row["is_enabled"] else "Enable", on_click=partial(go, change, here)).props("outline no-caps")
    ui.button("Delete", color="negative", on_click=partial(go, _delete, f"{view.tenant_path}/devices")).props(
        "outline no-caps"
    )


# --- actions on one


async def _create(view: View, table: Table) -> None:
    given: Json = {"name": "", "password": "", "groups": [], "with_token": False}
    groups = [str(row["name"]) for row in (await view.api.page(f"{view.tenant_path}/groups", limit=1000)).items]

    def draw() -> None:
        parts.field("Name", given, "name", "autofocus")
        field = parts.field("Password", given, "password", 'type=password hint="empty: one is made"')
        token = ui.checkbox("Logs in with a token (JWT), without a password").bind_value(given, "with_token")
        field.bind_enabled_from(token, "value", lambda value: not value)
        if groups:
            ui.select(groups, multiple=True, label="Groups").props("outlined dense options-dense").bind_value(
                given, "groups"
            )

    async def send() -> object | None:
        body: Json = {"name": given["name"], "groups": given["groups"]}
        if given["with_token"]:
            body["with_token"] = True
        elif given["password"]:
            body["password"] = given["password"]
        made = await view.do(view.api.post(f"{view.tenant_path}/devices", body), f"Device {given['name']} is created.")
        if made is not None:
            await table.load()
            if made.get("secret"):
                await _show_secret(view, made)
        return made

    def line() -> str:
        return command("device", "create", view.tenant, given["name"] or "NAME")

    await dialogs.form("Create device", draw, send, verb="Create", command=line)


async def _show_secret(view: View, made: Json) -> None:
    rows = [("User name", f"{view.tenant}/{made['name']}"), ("Secret", str(made["secret"]))]
    await dialogs.secret(f"Secret of {made['name']}", rows, _ONCE)


async def _rotate(view: View, name: str) -> None:
    line = command("device", "rotate-secret", view.tenant, name)
    question = "Its credential is replaced by a new secret. A device that has the old one is refused at its next login."
    if await dialogs.confirm(f"Rotate the secret of {name}", question, verb="Rotate", command=line):
        made = await view.do(view.api.post(f"{view.tenant_path}/devices/{part(name)}:rotate-secret"))
        if made is not None:
            await _show_secret(view, made)


async def _set_password(view: View, name: str) -> None:
    given: Json = {"password": ""}

    def draw() -> None:
        ui.label("It replaces the credential, and the device's connections are closed.").classes("io-soft")
        parts.field("Password", given, "password", "autofocus type=password autocomplete=new-password")

    async def send() -> object | None:
        path = f"{view.tenant_path}/devices/{part(name)}/password"
        return await view.do(view.api.put(path, given), f"The password of {name} is set.")

    line = command("device", "set-password", view.tenant, name)
    await dialogs.form(f"Password of {name}", draw, send, verb="Set", command=lambda: line)


async def _set_login(view: View, name: str) -> None:
    """Let it log in without a secret: by a client certificate, or by tokens."""
    given: Json = {"kind": "certificate", "subject": ""}

    def draw() -> None:
        ui.label("It replaces the credential, and the device's connections are closed.").classes("io-soft")
        kinds = {"certificate": "a TLS client certificate", "jwt": "a token (JWT) of a token issuer"}
        ui.select(kinds, label="Logs in with").props("outlined dense options-dense").bind_value(given, "kind")
        field = parts.field("Subject", given, "subject", "autofocus")
        field.props["hint"] = "a common name, or all of it, such as CN=dev1,O=Acme"
        field.bind_visibility_from(given, "kind", lambda kind: kind == "certificate")

    async def send() -> object | None:
        path = f"{view.tenant_path}/devices/{part(name)}"
        is_certificate = given["kind"] == "certificate"
        request = (
            view.api.put(f"{path}/certificate", {"subject": given["subject"]})
            if is_certificate
            else view.api.post(f"{path}:set-jwt")
        )
        return await view.do(request, f"{name} now logs in with a {'certificate' if is_certificate else 'token'}.")

    def line() -> str:
        is_certificate = given["kind"] == "certificate"
        words = (given["subject"] or "SUBJECT",) if is_certificate else ()
        return command("device", "set-certificate" if is_certificate else "set-jwt", view.tenant, name, *words)

    await dialogs.form(f"Login of {name}", draw, send, verb="Set", command=line)


async def _disable(view: View, name: str) -> bool:
    line = command("device", "disable", view.tenant, name)
    question = "Its connections are closed and new ones are refused. Its account and sessions stay."
    if not await dialogs.confirm(f"Disable {name}", question, verb="Disable", command=line):
        return False
    return (
        await view.do(view.api.post(f"{view.tenant_path}/devices/{part(name)}:disable"), f"{name} is disabled.")
        is not None
    )


async def _enable(view: View, name: str) -> bool:
    return (
        await view.do(view.api.post(f"{view.tenant_path}/devices/{part(name)}:enable"), f"{name} is enabled.")
        is not None
    )


async def _delete(view: View, name: str) -> bool:
    line = command("device", "delete", view.tenant, name, "--yes")
    question = "The rules, limits and bans that name it, and its sessions with their messages, are removed as well."
    if not await dialogs.confirm(
        f"Delete device {name}", question, verb="Delete", danger=Danger.SEVERE, name=name, command=line
    ):
        return False
    return (
        await view.do(view.api.delete(f"{view.tenant_path}/devices/{part(name)}"), f"Device {name} is deleted.")
        is not None
    )


# --- a file of them


class _Import:
    """A file is checked first, all of it; then all of it is imported, or nothing."""

    def __init__(self, view: View, table: Table) -> None:
        self._view = view
        self._table = table
        self._content = b""
        self._is_generating = True
        self._checked = Checked[tuple[bytes, bool]](self._send, lambda allowed: self._button.set_enabled(allowed))

    def show(self) -> None:
        with dialogs.dialog(f"Import devices into {self._view.tenant}", wide=True) as self._dialog:
            ui.label(
                "A CSV file with the columns name,password and, if you like, groups and limits. All of it is imported, or nothing."
            )
            parts.command_line(command("device", "import", self._view.tenant, "FILE", "--dry-run"))
            ui.checkbox("Make the secrets that are missing", value=True, on_change=self._toggled)
            parts.file_field("CSV file", ".csv,text/csv", IMPORT_BYTES, self._uploaded)
            self._result = ui.element("div").classes("io-lines")
            self._secrets = ui.element("div").classes("io-lines")
            with ui.row().classes("io-buttons"):
                self._close = ui.button("Close", on_click=self._dialog.close).props("flat")
                self._button = ui.button("Import", on_click=self._import).props("unelevated")
                self._button.disable()
        self._dialog.open()

    async def _toggled(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._is_generating = bool(event.value)
        if self._content:
            await self._check()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        self._content = await event.file.read()
        await self._check()

    async def _check(self) -> None:
        try:
            found = await self._checked.check((self._content, self._is_generating))
        except RefusalError as refusal:
            self._tell(refusal.detail, list(refusal.errors))
            return
        if found is not None:
            self._tell(f"{len(found['devices'])} devices would be created.", found["devices"])

    async def _import(self) -> None:
        try:
            done = await self._checked.do()
        except RefusalError as refusal:
            self._tell(refusal.detail, list(refusal.errors))
            return
        if done is None:
            return
        _, found = done
        if secret_files.is_left(self._dialog, found["secrets"]):
            return
        self._tell(f"{len(found['devices'])} devices are created.", found["devices"])
        with self._secrets:
            secret_files.offer(self._dialog, self._close, found["secrets"])
        await self._table.load()

    async def _send(self, asked: tuple[bytes, bool], is_dry_run: bool) -> Json:
        content, is_generating = asked
        words = {"dry_run": str(is_dry_run).lower(), "generate_secrets": str(is_generating).lower()}
        path = f"{self._view.tenant_path}/devices:import"
        return dict(await self._view.api.post(path, query=words, text=content))

    def _tell(self, line: str, rows: list[str]) -> None:
        self._result.clear()
        with self._result:
            ui.label(line).classes("io-strong")
            for row in rows[:_SHOWN]:
                ui.label(str(row)).classes("io-code")
            if len(rows) > _SHOWN:
                ui.label(f"... and {len(rows) - _SHOWN} more").classes("io-soft")
