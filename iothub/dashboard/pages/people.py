"""/keys and /users: who may use the API and these pages. A secret is shown once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.dialogs import Danger
from iothub.dashboard.frame import ADMINISTRATION, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table
from iothub.dashboard.units import moment

_PLATFORM = ("platform-admin", "operator", "viewer")
_TENANT = ("tenant-admin", "tenant-viewer")
_ONCE = "It is shown this once: only a hash of it is stored."


def _state(row: Json) -> str:
    return "enabled" if row["is_enabled"] else "disabled"


_COMMON = (
    Column("role", "Role"),
    Column("tenant", "Tenant"),
    Column("is_enabled", "State", "badge", of=_state),
    Column("created", "Created (UTC)", show=moment),
)


class _Holders:
    """Keys or users: both are made, disabled, enabled and deleted, and have a secret that is replaced."""

    def __init__(self, view: View, noun: str, path: str, scope: str, roles: tuple[str, ...]) -> None:
        self._view, self._noun, self._path, self._scope, self._roles = view, noun, path, scope, roles
        self._secret = "key" if noun == "key" else "password"
        self._replace = "rotate" if noun == "key" else "set-password"

    async def show(self, columns: tuple[Column, ...], empty: str) -> None:
        actions = parts.heading(f"{'API keys' if self._noun == 'key' else 'Users'}")
        self._table = Table(
            self._view,
            self._path,
            columns,
            empty=Empty(empty, command("admin", self._noun, "create", "NAME", "--role", "ROLE"), self._scope),
            actions=[
                Action("key", f"Replace the {self._secret}", self._renew, self._scope),
                Action("block", "Disable", self._then("disable"), self._scope, self._may_be_disabled),
                Action("check_circle", "Enable", self._then("enable"), self._scope, lambda row: not row["is_enabled"]),
                Action("delete", "Delete", self._delete, self._scope, self._is_other),
            ],
        )
        if self._view.may(self._scope):
            with actions:
                ui.button(f"Create {self._noun}", icon="add", on_click=self._create).props("unelevated no-caps")
        await self._table.load()

    def _is_other(self, row: Json) -> bool:
        """Whether it is not who looks at the page, who would be locked out."""
        return self._noun != "user" or row["name"] != self._view.me.name

    def _may_be_disabled(self, row: Json) -> bool:
        return bool(row["is_enabled"]) and self._is_other(row)

    def _then(self, verb: str) -> Callable[[Json], Awaitable[object]]:
        async def run(row: Json) -> None:
            name = str(row["name"])
            question = "It is refused from now on." if verb == "disable" else "It may be used again."
            line = command("admin", self._noun, verb, name)
            if await dialogs.confirm(f"{verb.capitalize()} {name}", question, verb=verb.capitalize(), command=line):
                await self._view.do(self._view.api.post(f"{self._path}/{part(name)}:{verb}"), f"{name}: {verb}d.")
                await self._table.reload()

        return run

    async def _renew(self, row: Json) -> None:
        name = str(row["name"])
        line = command("admin", self._noun, self._replace, name, *(["--generate"] if self._noun == "user" else []))
        question = f"A new {self._secret} is made and shown once. The old one is refused from then on."
        title = f"Replace the {self._secret} of {name}"
        if await dialogs.confirm(title, question, verb="Replace", command=line):
            await self._show_secret(
                name, await self._view.do(self._view.api.post(f"{self._path}/{part(name)}:{self._replace}"))
            )

    async def _delete(self, row: Json) -> None:
        name = str(row["name"])
        line = command("admin", self._noun, "delete", name, "--yes")
        question = "It is refused from now on, and cannot be had back."
        title = f"Delete {self._noun} {name}"
        if await dialogs.confirm(title, question, verb="Delete", danger=Danger.SEVERE, name=name, command=line):
            await self._view.do(self._view.api.delete(f"{self._path}/{part(name)}"), f"{name} is deleted.")
            await self._table.reload()

    async def _create(self) -> None:
        given: Json = {"name": "", "role": self._roles[0], "tenant": ""}

        def draw() -> None:
            parts.field("Name", given, "name", "autofocus")
            role = ui.select(list(self._roles), label="Role").props("outlined dense").bind_value(given, "role")
            tenant = parts.field("Tenant", given, "tenant")
            tenant.bind_visibility_from(role, "value", lambda value: value not in _PLATFORM)

        async def send() -> object | None:
            body = {"name": given["name"], "role": given["role"]}
            if given["role"] not in _PLATFORM and given["tenant"]:
                body["tenant"] = given["tenant"]
            made = await self._view.do(self._view.api.post(self._path, body), f"{given['name']} is created.")
            if made is not None:
                await self._table.load()
                await self._show_secret(str(given["name"]), made)
            return made

        def line() -> str:
            tenant = ["--tenant", given["tenant"]] if given["role"] not in _PLATFORM and given["tenant"] else []
            words = ["--generate"] if self._noun == "user" else []
            return command(
                "admin", self._noun, "create", given["name"] or "NAME", "--role", given["role"], *tenant, *words
            )

        await dialogs.form(f"Create {self._noun}", draw, send, verb="Create", command=line)

    async def _show_secret(self, name: str, made: Json | None) -> None:
        if made is not None and made.get(self._secret):
            rows = [(self._secret.capitalize(), str(made[self._secret]))]
            await dialogs.secret(f"The {self._secret} of {name}", rows, _ONCE)


@page("/keys", title="API keys", scope="keys:read", group=ADMINISTRATION, icon="vpn_key", key="k")
async def show_keys(view: View) -> None:
    holders = _Holders(view, "key", "/api-keys", "keys:write", (*_PLATFORM, *_TENANT, "scrape"))
    await holders.show((Column("name", "Name"), Column("prefix", "Begins with", "code"), *_COMMON), "No keys yet.")


@page("/users", title="Users", scope="users:read", group=ADMINISTRATION, icon="people")
async def show_users(view: View) -> None:
    holders = _Holders(view, "user", "/users", "users:write", (*_PLATFORM, *_TENANT))
    columns = (Column("name", "Name"), *_COMMON, Column("login", "Last login (UTC)", show=moment))
    await holders.show(columns, "No users yet.")
