"""The application: all paths, what their errors look like, the OpenAPI, and the two pages that need no key.

Knows no socket and no process: `iothub.rest.serve` has them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Match
from starlette.types import Lifespan

from iothub.base.errors import IotHubError
from iothub.config.sections import Config
from iothub.rest import (
    auth,
    devices,
    explain,
    issuers,
    jobs,
    live,
    machine_paths,
    messages,
    models,
    platform,
    quotas,
    rules,
    tenants,
    traces,
    users,
    webhooks,
)
from iothub.rest.caller import BoundedHub, Caller, Hub, Principal
from iothub.rest.cookies import LOGIN
from iothub.rest.edge import PREFIX, Edge
from iothub.rest.front import Front, MakePages, Own
from iothub.rest.machine import Machine
from iothub.rest.problems import DEFECT, Code, ProblemError, problem_of, response_of
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub.rest.texts import sentence_of
from iothub_tenants.accounts.roles import Role
from iothub_tenants.accounts.store import AccountStore

SUBJECTS = (
    auth,
    tenants,
    devices,
    rules,
    issuers,
    quotas,
    live,
    messages,
    explain,
    traces,
    platform,
    users,
    jobs,
    webhooks,
    machine_paths,
)
THREADS = 12  # an embedded database has 15 connections
OPENAPI = f"{PREFIX}/openapi.json"
_SAMPLING = Principal("key", "own:dashboard", "dashboard", Role.SCRAPE, None)  # is in no table
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>iothub</title>
<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}</style>
<h1>iothub</h1>
<p>This is the REST API of an iothub, under <code>/api/v1</code>. The dashboard is not here, because NiceGUI is not installed:
<code>pip install 'iothub[admin]'</code> installs it.</p>
<p>Make a key: <code>iothub admin key create NAME --role platform-admin</code></p>
<p>Ask: <code>curl -H "Authorization: Bearer KEY" .../api/v1/tenants</code></p>
<p>What there is: <code>/api/v1/openapi.json</code>, with a key.</p>
</html>
"""


def make_app(
    *,
    store: AccountStore,
    hub: Hub,
    machine: Machine,
    settings: Config,
    version: str,
    pages: MakePages | None = None,
) -> Edge | Front:
    """Return the whole application. `pages`: what has the paths that are not the API's. The caller closes the store."""
    bounded = BoundedHub(hub)
    if pages is None:
        return Edge(make_paths(version), store=store, hub=bounded, machine=machine, settings=settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _lifespan(app), made.running():
            yield

    paths = make_paths(version, lifespan)
    edge = Edge(paths, store=store, hub=bounded, machine=machine, settings=settings)
    own = Own(paths, Caller(_SAMPLING, store, bounded, settings))
    made = pages(edge, own, has_oidc=bool(settings.admin.oidc.issuer), mqtt=lambda: bounded.address("tcp"))
    return Front(edge, made)


def make_paths(version: str, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """Return all paths; what they work on comes with each request, from the edge."""
    app = FastAPI(
        title="iothub",
        version=version,
        summary="Tenants, devices, access, limits, sessions and messages of an iothub.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan or _lifespan,
        redirect_slashes=False,
    )
    for routes in (*(subject.routes for subject in SUBJECTS), _own(app)):
        routes.add_to(app, PREFIX)
    _add_pages(app)
    app.state.queries = _queries(app)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return app


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI 3.1 of all paths."""
    document = app.openapi()
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["key"] = {"type": "http", "scheme": "bearer", "description": "`iothub admin key create` makes one."}
    schemes["login"] = {"type": "apiKey", "in": "cookie", "name": LOGIN, "description": "`POST /auth/login` sets it."}
    document["security"] = [{"key": []}, {"login": []}]
    return document


def _queries(app: FastAPI) -> dict[str | None, set[str]]:
    """Return the names of the query's parameters by operation: one that is not known is a mistake, such as `limt`.

    The OpenAPI has them, too; making it takes longer than half of all else that is made here.
    """
    return {
        route.operation_id: _query_of(route.dependant)
        for route in app.routes
        if isinstance(route, APIRoute) and route.include_in_schema
    }


def _query_of(dependant: Dependant) -> set[str]:
    return {field.alias for field in dependant.query_params}.union(*map(_query_of, dependant.dependencies))


@asynccontextmanager
async def _lifespan(_app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield


def _own(app: FastAPI) -> Routes:
    routes = Routes("platform")

    @routes.get("/openapi.json", Scope.SELF_READ)
    def show_openapi(_call: Call) -> Response:
        """Give this document."""
        return JSONResponse(openapi_of(app))

    return routes


def _add_pages(app: FastAPI) -> None:
    """Add what needs no key, and says no more than whether somebody is there."""

    @app.get("/", include_in_schema=False)
    async def show_page() -> Response:
        return HTMLResponse(_PAGE)

    @app.get("/livez", include_in_schema=False)
    async def say_alive() -> Response:
        return JSONResponse({"status": "up"})

    @app.get("/readyz", include_in_schema=False)
    def say_ready(request: Request) -> Response:
        store: AccountStore = request.scope["iothub.store"]
        is_up = store.probe().is_reached
        return JSONResponse({"status": "up" if is_up else "down"}, 200 if is_up else 503)


# --- errors


def _refused(_request: Request, error: ProblemError) -> Response:
    return response_of(error)


def _failed(request: Request, error: IotHubError) -> Response:
    caller = request.scope.get("iothub.caller")
    return response_of(problem_of(error, is_platform=caller is not None and caller.is_platform))


def _invalid(_request: Request, error: RequestValidationError) -> Response:
    """A value that is given back might be a password: only its place is."""
    found = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return response_of(ProblemError(Code.MALFORMED_JSON, "the body is not JSON"))
    seen = dict.fromkeys((_place(each["loc"]), sentence_of(each)) for each in found[:50])  # once, not for each kind
    errors = [{"field": field, "detail": detail} for field, detail in seen]
    named = [f"{field}: {detail}" for field, detail in seen][:_NAMED] or ["body: not valid"]
    more = len(errors) - len(named)
    text = "; ".join([*named, f"and {more} more"] if more > 0 else named)
    return response_of(ProblemError(Code.INVALID, text, errors=errors))


_NAMED = 5  # fields in one sentence; `errors` has all
_KINDS = frozenset(
    {role.value for role in Role} | {name for name, each in vars(models).items() if isinstance(each, type)}
)


def _place(parts: Sequence[object]) -> str:
    """Return the path of a field. A body of one of several kinds has the kind in it (a role, a class), a name "[key]": no field is called so."""
    return ".".join(str(part)[:64] for part in parts if part not in _KINDS and part != "[key]")


def _of_http(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        problem = ProblemError(Code.METHOD_NOT_ALLOWED, f"this path takes {allowed}", headers={"Allow": allowed})
    elif error.status_code == 404:
        problem = ProblemError(Code.NOT_FOUND, f"there is no such path: {OPENAPI} lists them")
    elif error.status_code < 500:
        problem = ProblemError(Code.MALFORMED_JSON, "the body cannot be read")
    else:
        problem = ProblemError(Code.DEFECT, DEFECT)
    return response_of(problem)


def _defect(_request: Request, _error: Exception) -> Response:
    """The edge logs it."""
    return response_of(ProblemError(Code.DEFECT, DEFECT))


def _methods(request: Request) -> list[str]:
    """Return what all routes of this path take."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)


_HANDLERS: dict[Any, Any] = {
    ProblemError: _refused,
    IotHubError: _failed,
    RequestValidationError: _invalid,
    HTTPException: _of_http,
    Exception: _defect,
}
