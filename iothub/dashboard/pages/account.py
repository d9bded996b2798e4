"""/account: who has logged in here, what the role may do, and another password."""

from __future__ import annotations

from nicegui import ui

from iothub.dashboard import parts
from iothub.dashboard.api import Json
from iothub.dashboard.frame import View, page

_FIELDS = {"old": "Old password", "new": "New password", "again": "New password again"}
_COMPLETE = {"old": "current-password", "new": "new-password", "again": "new-password"}


@page("/account", title="Account", scope="self:read")
async def show(view: View) -> None:
    me = await view.api.get("/whoami")
    parts.heading("Account")
    with parts.grid():
        with parts.panel("You"):
            parts.facts(
                [
                    ("Name", str(me["name"])),
                    ("Role", str(me["role"])),
                    ("Tenant", str(me["tenant"] or "all")),
                    *[(f"Scopes :{verb}", names) for verb, names in _scopes(me["scopes"])],
                ]
            )
        if view.may("self:login"):
            with parts.panel("Change the password"):
                _password(view)


def _scopes(scopes: list[str]) -> list[tuple[str, str]]:
    """Return for each verb the nouns that it is allowed for."""
    found: dict[str, list[str]] = {}
    for scope in scopes:
        noun, _, verb = scope.partition(":")
        found.setdefault(verb, []).append(noun)
    return [(verb, ", ".join(nouns)) for verb, nouns in sorted(found.items())]


def _password(view: View) -> None:
    given: Json = dict.fromkeys(_FIELDS, "")

    async def send() -> None:
        if given["new"] != given["again"]:
            parts.notify("The two new passwords differ: type them again.", "negative")
            return
        body = {"old": given["old"], "new": given["new"]}
        if await view.do(view.api.post("/auth/password", body)) is not None:
            ui.navigate.to("/login")

    with ui.element("form").classes("io-form").on("submit.prevent", send):
        ui.label("All logins of yours end, this one, too: log in with the new password.").classes("io-soft")
        for name, label in _FIELDS.items():
            parts.field(label, given, name, f"type=password autocomplete={_COMPLETE[name]}")
        with ui.row().classes("io-buttons"):
            ui.button("Change the password").props("unelevated no-caps type=submit")
