"""Login and logout: plain pages, without the dashboard's own scripts, for who is nobody yet.

Knows no resource. Whoever has no session gets nothing else of the dashboard.
"""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from iothub.dashboard.api import Api, RefusalError, origin_of
from iothub.dashboard.frame import State
from iothub.dashboard.session import IDLE_S, cookie_name

FORM_BYTES = 8 << 10
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Log in - iothub</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/login.css">
</head>
<body class="{theme}">
<main>
<form method="post" action="/login{next}">
<h1><img src="/static/icon.svg" alt="" width="28" height="28"> iothub</h1>
{problem}
<label for="key">API key</label>
<input id="key" name="key" type="password" required autofocus autocomplete="current-password" placeholder="iothub_...">
<button>Log in</button>
<p>A key is made by<br><code>iothub admin key create NAME --role platform-admin</code></p>
</form>
</main>
</body>
</html>
"""
_NO_KEY = "This key is not valid: it may be disabled, rotated or deleted."
_ELSEWHERE = "The form was sent from another page: log in here."


async def show_login(request: Request) -> Response:
    return _page(request, "")


async def log_in(request: Request) -> Response:
    """Begin a session, when REST knows the key."""
    state: State = request.scope["iothub.dashboard"]
    if request.headers.get("origin") not in (None, origin_of(request)):
        return _page(request, _ELSEWHERE, 403)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            return _page(request, _NO_KEY, 413)
    key = parse_qs(body.decode("utf-8", "replace")).get("key", [""])[0].strip()
    address = (request.client.host, request.client.port) if request.client else ("", 0)
    if not key.isascii() or not key.isprintable() or not key:
        return _page(request, _NO_KEY, 401)
    try:
        await Api(state.rest, {"Authorization": f"Bearer {key}"}, address, origin_of(request)).get("/whoami")
    except RefusalError as refusal:
        return _page(request, _NO_KEY if refusal.status == 401 else refusal.detail, refusal.status)
    answer = RedirectResponse(local(request.query_params.get("next", "/")), 303)
    is_https = request.url.scheme == "https"
    answer.set_cookie(
        cookie_name(request.url.scheme),
        state.sessions.begin(key),
        max_age=int(IDLE_S),
        httponly=True,
        samesite="strict",
        secure=is_https,
    )
    return answer


async def log_out(request: Request) -> Response:
    state: State = request.scope["iothub.dashboard"]
    name = cookie_name(request.url.scheme)
    state.sessions.end(request.cookies, name)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(name, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return answer


def local(target: str) -> str:
    r"""Return where to go after the login: a path of this server, or its start.

    >>> local("/tenants?after=a"), local("//evil.example/"), local("https://evil.example/"), local("/\\evil.example")
    ('/tenants?after=a', '/', '/', '/')
    """
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_path and "\\" not in target else "/"


def _page(request: Request, problem: str, status: int = 200) -> Response:
    wanted = local(request.query_params.get("next", "/"))
    theme = request.cookies.get("iothub_theme", "")
    text = _PAGE.format(
        next=f"?next={quote(wanted, safe='')}" if wanted != "/" else "",
        problem=f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else "",
        theme=theme if theme in ("dark", "light") else "",
    )
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})
