"""A path, its one scope, and what of the OpenAPI all paths have in common.

Knows no resource. Handlers are plain functions: they block, and run in the pool of threads.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from iothub.base.documents import NotJsonError, read_json
from iothub.base.errors import ConfigError
from iothub.rest.caller import Caller
from iothub.rest.problems import MEDIA_TYPE, Code, ProblemError
from iothub.rest.scopes import Scope
from iothub_tenants.identity import shown

Handler = Callable[..., Any]
SCOPE = "x-scope"  # in the OpenAPI


class Problem(BaseModel):
    """A refusal, as RFC 9457 has it. `code` is stable; `with_commands` is the detail for people who have the command line."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    with_commands: str | None = None
    errors: list[dict[str, Any]] | None = None


async def caller_of(request: Request) -> Caller:
    """Return who makes the request; whoever has no key was refused before."""
    caller: Caller = request.scope["iothub.caller"]
    return caller


Call = Annotated[Caller, Depends(caller_of)]
_SMALL_BYTES = 64 << 10  # of a body that is read again in a millisecond; others wait for no more
CSV = {"requestBody": {"required": True, "content": {"text/csv": {"schema": {"type": "string"}}}}}
"""Of the OpenAPI of a path that takes a file."""
IfMatch = Annotated[
    str | None, Header(alias="If-Match", max_length=200, description="Change it only if it still has this ETag.")
]


async def _csv_lines(request: Request) -> list[str]:
    """Return the lines of a file as they are; what is not UTF-8 is named by who reads them."""
    text = bytes(request.scope["iothub.body"]).decode("utf-8", "surrogateescape")
    return list(
        io.StringIO(text, newline=None)
    )  # as a file is read: other marks that divide lines are letters of a cell


CsvLines = Annotated[list[str], Depends(_csv_lines)]


def _idempotency(
    _key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=200,
            description="A repeated request with the same key gets the first answer again, for a day.",
        ),
    ] = None,
) -> None:
    """For the OpenAPI: `iothub.rest.idempotency` reads it."""


def _require_strict(body: bytes) -> None:
    """Raise ProblemError if a body has what the framework takes in silence: a name twice in an object, half of a character."""
    try:
        read_json(body)
    except NotJsonError:
        pass  # or a path that reads no body: who reads one as JSON has refused it before
    except ConfigError as error:
        raise ProblemError(Code.INVALID, f"body: {error}") from None


def _scoped(scope: Scope) -> Callable[[Request, Caller], Any]:
    async def check(request: Request, caller: Call) -> None:
        caller.require(scope, request.path_params.get("tenant"))
        body = bytes(request.scope.get("iothub.body", b""))
        if not request.headers.get("content-type", "").startswith("text/csv"):
            if len(body) <= _SMALL_BYTES:
                _require_strict(body)
            else:
                await run_in_threadpool(_require_strict, body)
        known = request.app.state.queries[request.scope["route"].operation_id]
        for name in request.query_params:
            if name not in known:
                raise ProblemError(Code.INVALID, f"query: there is no parameter {shown(name)}")

    return check


_PROBLEM = Problem.model_json_schema()


class Routes:
    """Paths of one subject."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._paths: list[tuple[str, Handler, dict[str, Any]]] = []

    def add_to(self, app: FastAPI, prefix: str) -> None:
        """Put all of them into an application."""
        for path, handler, options in self._paths:
            app.add_api_route(prefix + path, handler, **options)

    def get(self, path: str, scope: Scope, **options: Any) -> Callable[[Handler], Handler]:
        return self._add("GET", path, scope, **options)

    def post(self, path: str, scope: Scope, *, status: int = 201, **options: Any) -> Callable[[Handler], Handler]:
        """Add what creates something, or an action; `Idempotency-Key` works for all of them."""
        return self._add("POST", path, scope, status=status, **options)

    def patch(self, path: str, scope: Scope, **options: Any) -> Callable[[Handler], Handler]:
        return self._add("PATCH", path, scope, **options)

    def put(self, path: str, scope: Scope, **options: Any) -> Callable[[Handler], Handler]:
        return self._add("PUT", path, scope, **options)

    def delete(self, path: str, scope: Scope, *, status: int = 204, **options: Any) -> Callable[[Handler], Handler]:
        return self._add("DELETE", path, scope, status=status, **options)

    def _add(
        self,
        method: str,
        path: str,
        scope: Scope,
        *,
        returns: Any = None,
        status: int = 200,
        extra: Mapping[str, Any] | None = None,
        media_type: str = "application/json",
    ) -> Callable[[Handler], Handler]:
        """`returns`: the model of the answer, for the OpenAPI; `extra`: more of it."""
        is_open = scope is Scope.OPEN
        depends = [] if is_open else [Depends(_scoped(scope))]
        if method == "POST" and not is_open:
            depends.append(Depends(_idempotency))
        done: dict[str, Any] = {"description": "Done."}
        if returns is not None:
            done["model"] = returns
        elif media_type != "application/json":
            done["content"] = {media_type: {"schema": {"type": "string"}}}
        problem = {"description": "Refused.", "content": {MEDIA_TYPE: {"schema": _PROBLEM}}}

        def decorate(handler: Handler) -> Handler:
            options = {
                "methods": [method],
                "status_code": status,
                "dependencies": depends,
                "response_model": None,
                "responses": {status: done, "default": problem},
                "operation_id": handler.__name__,
                "openapi_extra": {SCOPE: scope.value, **({"security": []} if is_open else {}), **(extra or {})},
                "summary": (handler.__doc__ or "").split("\n", 1)[0].rstrip("."),
                "tags": [self._tag],
            }
            self._paths.append((path, handler, options))
            return handler

        return decorate
