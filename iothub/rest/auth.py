"""/auth and /whoami: how a person logs in and out, and who a request is from."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from html import escape
from typing import Annotated

from fastapi import Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from iothub.base.errors import IotHubError
from iothub.rest import answers, cookies, models, oidc
from iothub.rest.caller import Principal
from iothub.rest.logins import Logins
from iothub.rest.problems import Code, ProblemError, problem_of
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub_tenants.accounts import login_sessions
from iothub_tenants.identity import shown

routes = Routes("auth")
# A page and no redirect: a browser does not send a SameSite=Strict cookie along a chain that another site has begun.
_BACK = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>iothub</title>
<p><a href="/">Continue</a></p>
</html>
"""
_REFUSED = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Not logged in - iothub</title>
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 15vh auto; padding: 0 1rem }}</style>
<h1>Not logged in</h1>
<p role="alert">{detail}</p>
<p><a href="/login">Back to the login</a></p>
</html>
"""


async def _or_page(request: Request, answer: Awaitable[Response]) -> Response:
    """Tell a browser a refusal as a page that leads back to the login: a person stands before it. Others get the problem."""
    try:
        return await answer
    except (ProblemError, IotHubError) as error:
        if not _prefers_page(request.headers.get("accept", "")):
            raise
        problem = error if isinstance(error, ProblemError) else problem_of(error, is_platform=False)
    headers = {**problem.headers, "Cache-Control": "no-store"}
    return HTMLResponse(_REFUSED.format(detail=escape(problem.detail)), problem.code.status, headers)


def _prefers_page(accept: str) -> bool:
    """Whether HTML is named, and JSON not with a higher weight (RFC 9110, 12.5.1).

    >>> _prefers_page("text/html,*/*;q=0.8"), _prefers_page("application/json, text/html;q=0.5"), _prefers_page("*/*")
    (True, False, False)
    """
    weights = {"text/html": 0.0, "application/json": 0.0}
    for given in accept.split(","):
        kind, _, rest = (part.strip() for part in given.lower().partition(";"))
        weight = re.fullmatch(r"q=([01](?:\.\d{0,3})?)", rest)
        if kind in weights:
            weights[kind] = float(weight[1]) if weight else 1.0
    return weights["text/html"] > 0 and weights["text/html"] >= weights["application/json"]


async def _logins(request: Request) -> Logins:
    logins: Logins = request.scope["iothub.logins"]
    return logins


LoginService = Annotated[Logins, Depends(_logins)]


@routes.post("/auth/login", Scope.OPEN, status=200, returns=models.Self)
async def log_in(request: Request, logins: LoginService, body: models.Login) -> Response:
    """Log in with name and password. The answer sets the cookie of the login; it says who has logged in."""
    begun = await logins.log_in(body.name, body.password, address_of(request))
    return logged_in(request, answers.secret(self_of(Principal.of_user(begun.user))), begun)


@routes.get("/auth/oidc", Scope.OPEN, status=303)
async def begin_oidc(request: Request, logins: LoginService) -> Response:
    """Send a browser to the OpenID provider. Who accepts text/html gets a refusal as a page."""
    return await _or_page(request, _begin_oidc(request, logins))


async def _begin_oidc(request: Request, logins: Logins) -> Response:
    departure = await logins.begin_oidc()
    response = Response(status_code=303, headers={"Location": departure.url, "Cache-Control": "no-store"})
    cookies.put(response, request.scope, departure.cookie, oidc.FLOW_S, oidc.COOKIE, "lax")
    return response


@routes.get("/auth/oidc/callback", Scope.OPEN, media_type="text/html")
async def finish_oidc(
    request: Request,
    logins: LoginService,
    state: Annotated[str, Query(max_length=1024)] = "",
    code: Annotated[str, Query(max_length=4096)] = "",
    error: Annotated[str, Query(max_length=1024, description="Why the provider has logged in nobody.")] = "",
) -> Response:
    """Log in whom the OpenID provider has sent back, and go to the first page. Who accepts text/html gets a refusal as a page."""
    return await _or_page(request, _finish_oidc(request, logins, state, code, error))


async def _finish_oidc(request: Request, logins: Logins, state: str, code: str, error: str) -> Response:
    if error:
        raise ProblemError(Code.FORBIDDEN, f"the OpenID provider has logged in nobody: {shown(error)}")
    cookie = cookies.read(request.scope, oidc.COOKIE)
    begun = await logins.finish_oidc(cookie, state, code, address_of(request))
    response = HTMLResponse(_BACK, headers={"Cache-Control": "no-store"})
    cookies.drop(response, request.scope, oidc.COOKIE)
    return logged_in(request, response, begun)


@routes.post("/auth/logout", Scope.SELF_LOGIN, status=204)
async def log_out(request: Request, call: Call) -> Response:
    """End the login of this request's cookie."""
    token = cookies.read(request.scope)
    if call.principal.kind != "user" or token is None:
        raise ProblemError(Code.CONFLICT, "this request was made with a key, which has no login to end")
    await run_in_threadpool(login_sessions.end, call.store, token)
    response = answers.gone()
    cookies.drop(response, request.scope)
    return response


@routes.post("/auth/password", Scope.SELF_LOGIN, status=204)
async def change_own_password(
    request: Request, call: Call, logins: LoginService, body: models.PasswordChange
) -> Response:
    """Choose another password for oneself. All logins of the user end, this one, too."""
    if call.principal.kind != "user":
        raise ProblemError(Code.CONFLICT, "this request was made with a key, which has no password")
    await logins.change_password(call.principal.name, body.old, body.new, address_of(request))
    response = answers.gone()
    cookies.drop(response, request.scope)
    return response


@routes.get("/whoami", Scope.SELF_READ, returns=models.Self)
def show_self(call: Call) -> Response:
    """Show who makes this request: a key or a user, the role, the tenant and the scopes."""
    return answers.shown(self_of(call.principal))


def self_of(who: Principal) -> dict[str, object]:
    """Return what a caller hears of himself."""
    role, scopes = who.role.value, sorted(who.scopes)
    return {"kind": who.kind, "name": who.name, "role": role, "tenant": who.tenant, "scopes": scopes}


def logged_in(request: Request, response: Response, begun: login_sessions.Begun) -> Response:
    """Give the browser the cookie of a login."""
    cookies.put(response, request.scope, begun.token, login_sessions.WHOLE_S)
    return response


def address_of(request: Request) -> str:
    """Return whom the request is from, behind proxies that are trusted."""
    return request.client.host if request.client is not None else ""
