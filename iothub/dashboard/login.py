"""Login and logout: plain pages, without the dashboard's own scripts, for who is nobody yet.

Knows no resource. Whoever has no session gets nothing else of the dashboard.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from iothub.dashboard import open_pages
from iothub.dashboard.api import RefusalError, api_for
from iothub.dashboard.frame import State
from iothub.rest import cookies
from iothub.rest.edge import PREFIX

if TYPE_CHECKING:
    import httpx

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
<label for="name">Name</label>
<input id="name" name="name" required autofocus autocomplete="username" autocapitalize="none" value="{name}">
<label for="password">Password</label>
<input id="password" name="password" type="password" required autocomplete="current-password">
<button>Log in</button>
{oidc}
<p>A user is made by<br><code>iothub admin user create NAME --role platform-admin --generate</code></p>
</form>
</main>
</body>
</html>
"""
_OIDC = f'<a class="button" href="{PREFIX}/auth/oidc">Log in with the OpenID provider</a>'
_TOO_LONG = "The form is too long."


async def show_login(request: Request) -> Response:
    return _page(request, "")


async def log_in(request: Request) -> Response:
    """Hand name and password to REST, and the cookie that it sets to the browser."""
    state: State = request.scope["iothub.dashboard"]
    form = await _form(request)
    if form is None:
        return _page(request, _TOO_LONG, 413)
    origin = request.headers.get("origin")  # of the page that has the form: REST refuses that of another server
    try:
        answer = await api_for(state.rest, request).send(
            "POST", "/auth/login", form, headers={"Origin": origin} if origin else {}
        )
    except RefusalError as refusal:
        return _page(request, refusal.detail, refusal.status, name=form["name"])
    response = RedirectResponse(local(request.query_params.get("next", "/")), 303)
    _hand_over(answer, response)
    return response


async def log_out(request: Request) -> Response:
    state: State = request.scope["iothub.dashboard"]
    response = RedirectResponse("/login", 303)
    open_pages.end(cookies.read(request.scope))
    try:
        _hand_over(await api_for(state.rest, request).send("POST", "/auth/logout"), response)
    except RefusalError:  # it has ended already
        cookies.drop(response, request.scope)
    return response


async def _form(request: Request) -> dict[str, str] | None:
    """Read the two fields; None: it is longer than both can be."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            return None
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: fields.get(name, [""])[0] for name in ("name", "password")}


def _hand_over(answer: httpx.Response, response: Response) -> None:
    for each in answer.headers.get_list("set-cookie"):
        response.headers.append("set-cookie", each)


def local(target: str) -> str:
    r"""Return where to go after the login: a path of this server, or its start.

    >>> local("/tenants?after=a"), local("//evil.example/"), local("https://evil.example/"), local("/\\evil.example")
    ('/tenants?after=a', '/', '/', '/')
    """
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_path and "\\" not in target else "/"


def _page(request: Request, problem: str, status: int = 200, *, name: str = "") -> Response:
    state: State = request.scope["iothub.dashboard"]
    wanted = local(request.query_params.get("next", "/"))
    theme = request.cookies.get("iothub_theme", "")
    text = _PAGE.format(
        next=f"?next={quote(wanted, safe='')}" if wanted != "/" else "",
        problem=f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else "",
        name=escape(name),
        oidc=_OIDC if state.has_oidc else "",
        theme=theme if theme in ("dark", "light") else "",
    )
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})
