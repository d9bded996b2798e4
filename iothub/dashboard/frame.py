"""What all pages have: who looks at it, the navigation, the header, and how a refusal of REST is shown.

Knows no resource. `page` makes a page of a coroutine function; the package's docstring has an example.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from fastapi.responses import RedirectResponse, Response
from nicegui import ui

from iothub.base import log as logging
from iothub.dashboard import parts
from iothub.dashboard.api import TIMEOUT_S, Api, Json, RefusalError, api_for, part

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from iothub.dashboard.sampler import Point, Sampler

T = TypeVar("T")
Build = Callable[["View"], Awaitable[object]]

# Groups of the navigation, in their order. Those of TENANT are there when a page is about one tenant.
START, PLATFORM, TENANT, DIAGNOSE, ADMINISTRATION = "", "Platform", "Tenant", "Diagnose", "Administration"
GROUPS = (START, PLATFORM, TENANT, DIAGNOSE, ADMINISTRATION)
THEMES = {"dark": True, "light": False}  # anything else: as the browser has it
UNAUTHENTICATED = 401
_WAIT_S = 3 * TIMEOUT_S  # a page makes several requests; NiceGUI answers 500 for a slower one
DEFECT = "This page has a defect: the log of `iothub admin serve` has more. Load the page again."

log = logging.get(__name__)


@dataclass(frozen=True, slots=True)
class State:
    """What the pages of one process have in common."""

    rest: ASGIApp
    sampler: Sampler
    has_oidc: bool
    mqtt: Callable[[], str]  # where the hub beside this process takes MQTT without TLS; empty: nowhere


@dataclass(frozen=True, slots=True)
class Entry:
    """A page, as the navigation has it. Without an icon it is not there, such as the page of one object."""

    path: str
    title: str
    scope: str
    group: str
    icon: str
    key: str
    module: str


ENTRIES: list[Entry] = []


@dataclass(frozen=True, slots=True)
class Me:
    """Who looks at the page, as `/whoami` has him. `tenant` empty: of the platform."""

    name: str
    role: str
    tenant: str
    scopes: frozenset[str]


@dataclass(slots=True)
class View:
    """One browser's page: its session, what was asked for, and REST."""

    api: Api
    me: Me
    state: State
    entry: Entry
    path: Mapping[str, Any]
    query: Mapping[str, str]
    theme: str

    @property
    def tenant(self) -> str:
        """The tenant that the page is about: that of its path, else the viewer's own; empty: none."""
        return str(self.path.get("tenant") or self.me.tenant)

    @property
    def tenant_points(self) -> list[tuple[float, Point]]:
        """What the tenant did within the hour, for who may see its metrics."""
        is_own = self.me.tenant in ("", self.tenant)
        return self.state.sampler.rates(self.tenant) if is_own and self.may("tenant-metrics:read") else []

    @property
    def tenant_path(self) -> str:
        return f"/tenants/{part(self.tenant)}"

    def may(self, scope: str) -> bool:
        """Whether to offer what needs this scope. REST decides by itself."""
        return scope in self.me.scopes

    async def do(self, request: Awaitable[T], done: str = "") -> T | None:
        """Run an action: its answer, and a line that it is done; or None, and why REST refuses it."""
        try:
            answer = await request
        except RefusalError as refusal:
            self.tell(refusal)
            return None
        if done:
            parts.notify(done, "positive")
        return answer

    def tell(self, refusal: RefusalError) -> None:
        """Show a refusal beside the page. A session that has ended goes to the login."""
        if refusal.status == UNAUTHENTICATED:
            ui.navigate.to(login_path(self.entry.path if "{" not in self.entry.path else "/"))
            return
        parts.notify("\n".join((refusal.detail, *refusal.errors)), "negative", hint=parts.hint_for(refusal))


def page(  # each is a field of the navigation
    path: str, *, title: str, scope: str, group: str = START, icon: str = "", key: str = ""
) -> Callable[[Build], Build]:
    """Make a page. `scope`: without it the page says so and asks nothing; `key`: the page is `g KEY` on the keyboard."""

    def decorate(build: Build) -> Build:
        entry = Entry(path, title, scope, group, icon, key, build.__module__)
        ENTRIES.append(entry)

        async def show() -> Response | None:
            request = ui.context.client.request
            view = await _view(request, entry)
            if not isinstance(view, View):
                return view
            _draw(view)
            with (
                ui.element("div").classes("io-page").props("id=main tabindex=-1") as main
            ):  # inside the layout's own <main>
                await _fill(view, build, main)
            return None

        ui.page(path, title=f"{title} - iothub", response_timeout=_WAIT_S)(show)
        return build

    return decorate


def finish(modules: Sequence[str]) -> None:
    """Order the navigation by modules of pages, and have a page for every path that is left."""
    ENTRIES.sort(key=lambda entry: modules.index(entry.module))

    async def missing(_view: View) -> None:
        raise RefusalError(404, "not_found", "there is no such page")

    page("/{path:path}", title="Not found", scope="")(missing)


async def _view(request: Request, entry: Entry) -> View | Response:
    state: State = request.scope["iothub.dashboard"]
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    api = api_for(state.rest, request)
    try:
        me = _me(await api.get("/whoami"))
    except RefusalError as refusal:
        if refusal.status == UNAUTHENTICATED:
            return RedirectResponse(login_path(here), 303)
        me = Me("", "", "", frozenset())
    if request.url.path == "/" and me.tenant:
        return RedirectResponse(f"/tenants/{part(me.tenant)}", 303)
    theme = request.cookies.get("iothub_theme", "")
    return View(api, me, state, entry, request.path_params, dict(request.query_params), theme)


def _me(row: Json) -> Me:
    return Me(str(row["name"]), str(row["role"]), str(row.get("tenant") or ""), frozenset(row["scopes"]))


def login_path(here: str) -> str:
    """Return the path of the login that leads to this page."""
    return f"/login?next={quote(here, safe='/')}" if here not in ("", "/") else "/login"


async def _fill(view: View, build: Build, main: ui.element) -> None:
    """Let a page draw itself. What REST refuses, and a defect, stands in its place: the rest of the frame stays usable."""
    if view.entry.scope and not view.may(view.entry.scope):
        ui.status_code(403)
        parts.problem(
            RefusalError(403, "forbidden", f"your role {view.me.role} does not have the scope {view.entry.scope}")
        )
        return
    try:
        await build(view)
    except RefusalError as refusal:
        main.clear()
        ui.status_code(refusal.status)
        parts.problem(refusal)
    except Exception as error:  # the edge towards a browser
        log.error("defect in a page", page=view.entry.path, exc_info=error)
        main.clear()
        ui.status_code(500)
        parts.problem(RefusalError(500, "defect", DEFECT))


# --- what is around each page


def _draw(view: View) -> None:
    ui.on_exception(_failed)
    if view.theme in THEMES:
        ui.dark_mode(THEMES[view.theme])
        ui.add_head_html(f"<style>html{{background:{'#0f141b' if view.theme == 'dark' else '#f5f7fa'}}}</style>")
    drawer = (
        ui.left_drawer(value=False, bordered=True).classes("io-drawer").props("width=232 breakpoint=1023 show-if-above")
    )
    drawer.props(
        remove="model-value"
    )  # the browser decides by its width; a value, or None, would have the server decide or ask
    with drawer:
        _navigation(view)
    with ui.header().classes("io-header"):
        ui.link("Skip to the page", "#main").classes("io-skip")  # the first stop of the keyboard
        menu = ui.button(icon="menu", on_click=lambda: drawer.run_method("toggle"), color=None).props(
            'flat dense round aria-label="Navigation"'
        )
        menu.classes("io-menu")
        with ui.element("nav").classes("io-crumbs").props('aria-label="Where you are"'):
            _crumbs(view)
        ui.space()
        _tools(view)
    # the browser fills it in when it is opened: an element that the server keeps costs more than all the rest of it
    ui.element("div").classes("io-help").props('id=io-help role=dialog aria-label="Keyboard shortcuts" hidden')


def _failed(error: Exception) -> None:
    log.error("defect in a page", exc_info=error)
    parts.notify(DEFECT, "negative")


def entries_for(view: View) -> list[tuple[str, list[Entry]]]:
    """Return the navigation: by group, the pages that this session may see."""
    found = []
    for group in GROUPS:
        shown = [
            entry
            for entry in ENTRIES
            if entry.group == group
            and entry.icon
            and (group == TENANT or not view.me.tenant)
            and (not entry.scope or view.may(entry.scope))
            and ("{tenant}" not in entry.path or view.tenant)
        ]
        if shown:
            found.append((group, shown))
    return found


def target(view: View, entry: Entry) -> str:
    return entry.path.replace("{tenant}", part(view.tenant))


def list_of(entry: Entry) -> Entry:
    """Return the page of the navigation that a page belongs to: its list, or itself."""
    lists = [each for each in ENTRIES if each.icon and entry.path.startswith(f"{each.path}/")]
    return entry if entry.icon else max(lists, key=lambda each: len(each.path), default=entry)


def _navigation(view: View) -> None:
    """Draw the navigation as one element, which the browser fills: forty of the server's would cost more than most pages."""
    shown = list_of(view.entry)
    rows: list[dict[str, object]] = []
    for group, entries in entries_for(view):
        if group:
            rows.append({"group": f"{group} {view.tenant}" if group == TENANT else group})
        for entry in entries:
            row = {"title": entry.title, "href": target(view, entry), "icon": entry.icon, "key": entry.key}
            rows.append({**row, "here": entry is shown})
    with ui.link(target="/").classes("io-brand").props('aria-label="iothub, to the start"'):
        ui.element("span").classes("io-mark")
        ui.label("iothub")
    nav = ui.element("nav").props('aria-label="Pages"').classes("io-nav")
    nav.props["data-rows"] = json.dumps(rows)


def _crumbs(view: View) -> None:
    if view.path.get("tenant") and not view.me.tenant:
        ui.link("Tenants", "/tenants")
        ui.label("/").classes("io-soft")
        ui.link(view.tenant, f"/tenants/{part(view.tenant)}")
        ui.label("/").classes("io-soft")
    found = list_of(view.entry)
    if found is not view.entry:
        ui.link(found.title, target(view, found))
        ui.label("/").classes("io-soft")
    ui.label(view.entry.title).classes("io-crumb-here")


def _tools(view: View) -> None:
    keys = ui.button(icon="keyboard", color=None).props(
        'flat dense round aria-label="Keyboard shortcuts" data-shortcuts'
    )
    keys.classes("io-wide").on("click", js_handler="() => iothub.help(true)")
    theme = ui.button(icon="contrast", color=None).props('flat dense round aria-label="Light, dark or as the system"')
    theme.on("click", js_handler="() => iothub.theme()")
    with ui.button(icon="account_circle", color=None).props('flat dense round aria-label="Session"'), ui.menu():
        with ui.element("div").classes("io-me"):
            ui.label(view.me.name).classes("io-strong")
            ui.label(f"{view.me.role}{f' of {view.me.tenant}' if view.me.tenant else ''}").classes("io-soft")
        ui.separator()
        parts.menu_item("Account", lambda: ui.navigate.to("/account"))
        parts.menu_item("Log out", lambda: ui.navigate.to("/logout"))
