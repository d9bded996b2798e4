"""/tenants/{tenant}/token-issuers, and one of them: whose tokens (JWT) the devices of a tenant may log in with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from iothub.base.documents import read_json
from iothub.base.errors import ConfigError
from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, part
from iothub.dashboard.frame import TENANT, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import exact

_KINDS = {
    "": "no new key",
    "public_key": "a public key (PEM)",
    "jwks": "a JSON Web Key Set",
    "secret": "a shared secret",
}
_OPTIONS = {"public_key": "--public-key-file", "jwks": "--jwks-file", "secret": "--secret-file"}
_CHECKS = ("issuer", "audience")
_UNCHECKED = {"issuer": "not checked", "audience": "tokens that have one are refused"}


@page(
    "/tenants/{tenant}/token-issuers", title="Token issuers", scope="issuers:read", group=TENANT, icon="verified_user"
)
async def show(view: View) -> None:
    actions = parts.heading("Token issuers", "whose tokens (JWT) devices may log in with")

    async def delete_row(row: Json) -> None:
        if await _delete(view, str(row["name"])):
            await table.reload()

    table = Table(
        view,
        f"{view.tenant_path}/token-issuers",
        (
            Column("name", "Name", href=lambda row: f"{view.tenant_path}/token-issuers/{part(row['name'])}"),
            Column("algorithm", "Algorithm"),
            Column("", "Keys", "number", exact, lambda row: len(row["keys"])),
            Column("issuer", "Issuer (iss)", "code"),
            Column("audience", "Audience (aud)", "code"),
            Column("leeway_s", "Leeway (s)", "number", lambda value: f"{value:g}"),
        ),
        empty=Empty(
            "No token issuers: devices log in with a name and a secret.",
            command("token-issuer", "add", view.tenant, "NAME", "--public-key-file", "FILE"),
            "issuers:write",
        ),
        actions=[
            Action("edit", "Change", lambda row: _change(view, row, table.reload), "issuers:write"),
            Action("delete", "Remove", delete_row, "issuers:write"),
        ],
    )
    if view.may("issuers:write"):
        with actions:
            ui.button("Add token issuer", icon="add", on_click=lambda: _add(view, table)).props("unelevated no-caps")
    await table.load()


@page("/tenants/{tenant}/token-issuers/{name}", title="Token issuer", scope="issuers:read")
async def show_one(view: View) -> None:
    name = str(view.path["name"])
    here = f"{view.tenant_path}/token-issuers/{part(name)}"
    row = await view.api.get(here)

    async def show_again() -> None:
        ui.navigate.to(here)

    async def delete_here() -> None:
        if await _delete(view, name):
            ui.navigate.to(f"{view.tenant_path}/token-issuers")

    with parts.heading(name, f"token issuer of {view.tenant}"):
        if view.may("issuers:write"):
            ui.button("Change", icon="edit", on_click=lambda: _change(view, row, show_again)).props("outline no-caps")
            ui.button("Remove", icon="delete", color="negative", on_click=delete_here).props("outline no-caps")
    with parts.panel("Token issuer"):
        parts.facts(
            [
                ("Algorithm", str(row["algorithm"])),
                ("Issuer (iss)", str(row["issuer"] or _UNCHECKED["issuer"])),
                ("Audience (aud)", str(row["audience"] or _UNCHECKED["audience"])),
                ("Leeway (s)", f"{row['leeway_s']:g}"),
                *[(f"Key {number}", _key(key)) for number, key in enumerate(row["keys"], 1)],
            ]
        )


def _key(key: Json) -> str:
    if not key.get("sha256"):
        return "a shared secret, which is never shown"
    return f"{text(key.get('kid'))}, SHA-256 {key['sha256']}"


# --- actions


async def _add(view: View, table: Table) -> None:
    given: Json = {"name": "", "kind": "public_key", "key": "", "issuer": "", "audience": "", "leeway_s": 0}

    def draw() -> None:
        parts.field("Name", given, "name", "autofocus")
        _draw_fields(given, [kind for kind in _KINDS if kind])

    async def send() -> object | None:
        body = _body(given)
        if body is None:
            return None
        checks = {name: given[name] for name in _CHECKS if given[name]}
        request = view.api.post(f"{view.tenant_path}/token-issuers", {**body, **checks, "name": given["name"]})
        made = await view.do(request, f"Token issuer {given['name']} is trusted.")
        if made is not None:
            await table.load()
        return made

    await dialogs.form(
        "Add token issuer",
        draw,
        send,
        verb="Add",
        command=lambda: _line(view, "add", given["name"] or "NAME", given),
    )


async def _change(view: View, row: Json, done: Callable[[], Awaitable[object]]) -> None:
    """Ask for changes, and make them; `done` is called then."""
    name = str(row["name"])
    given: Json = {"kind": "", "key": "", **{each: row[each] for each in (*_CHECKS, "leeway_s")}}

    async def send() -> object | None:
        body = _body(given)
        if body is None:
            return None
        changes = {**body, **{each: given[each] for each in _CHECKS}}
        made = await view.do(
            view.api.patch(f"{view.tenant_path}/token-issuers/{part(name)}", changes),
            f"Token issuer {name} is changed.",
        )
        if made is not None:
            await done()
        return made

    def draw() -> None:
        _draw_fields(given, list(_KINDS))
        ui.label("New keys replace all old ones; connections whose token no longer fits are closed.").classes("io-soft")

    await dialogs.form(f"Change {name}", draw, send, verb="Save", command=lambda: _line(view, "update", name, given))


def _draw_fields(given: Json, kinds: list[str]) -> None:
    ui.select({kind: _KINDS[kind] for kind in kinds}, label="Key").props("outlined dense options-dense").bind_value(
        given, "kind"
    )
    key = parts.text_area("Key itself", given, "key", "autogrow input-class=io-code")
    key.bind_visibility_from(given, "kind", lambda kind: kind in ("public_key", "jwks"))
    secret = parts.field("Shared secret", given, "key", "type=password autocomplete=off")
    secret.props["hint"] = "of HS256, at least 32 bytes; whoever has it can make tokens"
    secret.bind_visibility_from(given, "kind", lambda kind: kind == "secret")
    parts.field("Issuer (iss)", given, "issuer", 'hint="empty: not checked"')
    audience = parts.field("Audience (aud)", given, "audience")
    audience.props["hint"] = "empty: tokens that have one are refused"
    ui.number("Leeway (s)", min=0, max=600).props("outlined dense").bind_value(given, "leeway_s")


def _body(given: Json) -> Json | None:
    """Return what REST gets; None: the key set is not JSON, and the page has said so."""
    body: Json = {"leeway_s": float(given["leeway_s"] or 0)}
    if given["kind"] == "jwks":
        try:
            found = read_json(str(given["key"]).encode("utf-8", "surrogatepass"))
        except ConfigError as error:
            parts.notify(f"The key set is not taken: {error}", "negative")
            return None
        if not isinstance(found, dict):
            parts.notify("The key set is not a JSON object.", "negative")
            return None
        body["jwks"] = found
    elif given["kind"]:
        body[given["kind"]] = given["key"]
    return body


def _line(view: View, verb: str, name: str, given: Json) -> str:
    words = ["token-issuer", verb, view.tenant, name]
    words += [_OPTIONS[given["kind"]], "FILE"] if given["kind"] else []
    for each in _CHECKS:
        words += [f"--{each}", given[each]] if given[each] or verb == "update" else []
    return command(*words, "--leeway", f"{float(given['leeway_s'] or 0):g}s")


async def _delete(view: View, name: str) -> bool:
    line = command("token-issuer", "remove", view.tenant, name, "--yes")
    question = "Its tokens are refused from now on; connections that logged in with them are closed."
    if not await dialogs.confirm(f"Remove token issuer {name}", question, verb="Remove", command=line):
        return False
    path = f"{view.tenant_path}/token-issuers/{part(name)}"
    return await view.do(view.api.delete(path), f"Token issuer {name} is no longer trusted.") is not None
