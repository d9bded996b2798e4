"""All pages as one ASGI application, for `iothub.rest` to serve where its own paths end.

Knows no resource. Every file that a page loads comes from here: a policy of the answers forbids anything else.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from nicegui import binding, core, ui
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from iothub.base import gc_tuning
from iothub.dashboard import export, login, open_pages
from iothub.dashboard.api import RefusalError, api_for
from iothub.dashboard.frame import UNAUTHENTICATED, State, finish, login_path
from iothub.dashboard.pages import (
    account,
    bans,
    changes,
    clients,
    devices,
    explain,
    groups,
    issuers,
    jobs,
    mqtt,
    overview,
    people,
    plans,
    platform,
    queues,
    quotas,
    rejected,
    retained,
    rules,
    sessions,
    streams,
    subscriptions,
    tenant,
    tenants,
    traces,
    usage,
    webhooks,
)
from iothub.dashboard.sampler import Sampler
from iothub.rest.edge import IMPORT_BYTES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGES = (
    overview,
    tenants,
    plans,
    platform,
    jobs,
    tenant,
    devices,
    clients,
    sessions,
    subscriptions,
    queues,
    retained,
    rejected,
    explain,
    traces,
    mqtt,
    groups,
    rules,
    bans,
    issuers,
    quotas,
    streams,
    webhooks,
    usage,
    changes,
    people,
    account,
)  # in the order of the navigation
STATIC = Path(str(files("iothub.dashboard") / "static"))
_SOCKET = "/_nicegui_ws/"
_FILES = "/_nicegui/"
_OF_CLIENTS = "/_nicegui/client/"  # what people send to a page of theirs
_OPEN = (
    "/static/",
    "/favicon.ico",
    "/login",
    "/logout",
    "/export.csv",
    "/trace.jsonl",
)  # these ask REST themselves, or tell nothing
_HEAD = '<link rel="stylesheet" href="/static/iothub.css"><script src="/static/iothub.js"></script>'
_RECONNECT_S = 10.0
_UPLOAD_BYTES = IMPORT_BYTES + 64 * 1024  # the largest file, and what a form puts around it
_DIGITS = 12


def policy(nonce: str = "") -> str:
    """Return the Content-Security-Policy of a page.

    Scripts that stand in the page need its nonce, so none that a client's string smuggles in would run. NiceGUI draws by Vue's templates,
    which the browser compiles: that needs 'unsafe-eval'.
    """
    script = f"'self' 'nonce-{nonce}' 'unsafe-eval'" if nonce else "'self'"
    return (
        f"default-src 'none'; script-src {script}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


class Dashboard:
    """The pages. `api`: the REST application that they ask, its edge included; `own`: the same, for the sampler alone."""

    def __init__(self, api: ASGIApp, own: ASGIApp, *, has_oidc: bool, mqtt: Callable[[], str]) -> None:
        self._state = State(api, Sampler(own), has_oidc, mqtt)
        self._app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        self._app.mount("/static", StaticFiles(directory=STATIC))
        for path, method, endpoint in (
            ("/favicon.ico", "GET", _show_icon),
            ("/login", "GET", login.show_login),
            ("/login", "POST", login.log_in),
            ("/logout", "GET", login.log_out),
            ("/export.csv", "GET", export.export),
            ("/trace.jsonl", "GET", traces.download),
        ):
            self._app.router.add_route(path, endpoint, [method])
        _configure(self._app)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run what runs beside the requests."""
        pages = self._app.router.lifespan_context(self._app)
        async with pages, self._state.sampler.running(), open_pages.watching(self._state.rest):
            gc_tuning.settle()
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["iothub.dashboard"] = self._state
        path = str(scope["path"])
        is_socket = path.startswith(_SOCKET)
        if scope["type"] != "lifespan" and not _is_open(path) and not await _is_logged_in(scope, self._state.rest):
            is_page = not is_socket and not path.startswith(_FILES)
            here = path + (f"?{query}" if (query := scope["query_string"].decode("latin-1")) else "")
            await (RedirectResponse(login_path(here), 303) if is_page else _refuse)(scope, receive, send)
            return
        if path.startswith(_OF_CLIENTS) and scope["type"] == "http" and not _is_short(scope):
            await PlainTextResponse("the file is too large", 413, {"Connection": "close"})(scope, receive, send)
            return
        if scope["type"] == "http" and not is_socket:
            send = _Guarded(send)
        await self._app(scope, receive, send)


def _configure(app: FastAPI) -> None:
    """Set NiceGUI up, which is there once in a process: so is a dashboard."""
    core.sio.eio.cors_allowed_origins = None  # its own origin alone
    ui.add_head_html(_HEAD, shared=True)
    finish([module.__name__ for module in PAGES])
    core.app.colors(primary="#0b737d", negative="#b3261e", positive="#17723f", warning="#8a5300")
    binding.MAX_PROPAGATION_TIME = 1.0  # what takes less is no news for an operator
    ui.run_with(
        app,
        title="iothub",
        favicon=STATIC / "icon.svg",
        dark=None,
        tailwind=False,
        show_welcome_message=False,
        reconnect_timeout=_RECONNECT_S,
        binding_refresh_interval=0.25,
        gzip_middleware_factory=None,
    )


async def _show_icon(_request: Request) -> Response:
    return FileResponse(STATIC / "icon.svg")


def _is_open(path: str) -> bool:
    return path.startswith(_OPEN) or (path.startswith(_FILES) and not path.startswith(_OF_CLIENTS))


async def _is_logged_in(scope: Scope, rest: ASGIApp) -> bool:
    """Whether the browser has a login. A page is kept in memory for a while, so nobody else gets one; a socket belongs to a page."""
    try:
        await api_for(rest, HTTPConnection(scope)).get("/whoami")
    except RefusalError as refusal:
        return refusal.status != UNAUTHENTICATED and not str(scope["path"]).startswith(_SOCKET)
    return True


def _is_short(scope: Scope) -> bool:
    """Whether a body says its length, which the server holds it to, and NiceGUI may keep it."""
    said = Headers(scope=scope).get("content-length", "" if scope["method"] == "POST" else "0")
    return said.isdecimal() and len(said) < _DIGITS and int(said) <= _UPLOAD_BYTES


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
    else:
        await PlainTextResponse("there is no login", 403)(scope, receive, send)


class _Guarded:
    """The way back of a page: its policy, and the nonce of the scripts that stand in it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._starts: list[Message] = []  # of a page: it is sent when the whole of it is there
        self._body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            is_page = headers.get("content-type", "").startswith("text/html")
            headers["Content-Security-Policy"] = policy(self._nonce if is_page else "")
            headers["Referrer-Policy"] = "same-origin"
            headers["X-Content-Type-Options"] = "nosniff"
            if is_page:
                headers["Cache-Control"] = "no-store"
                self._starts.append(message)
                return
        if not self._starts:
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            await self._finish(self._starts[0])

    async def _finish(self, start: Message) -> None:
        """Name the nonce in each script. A client's string has no `<` in a page, so none of them is one."""
        body = bytes(self._body).replace(b"<script", f'<script nonce="{self._nonce}"'.encode())
        MutableHeaders(scope=start)["Content-Length"] = str(len(body))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})
