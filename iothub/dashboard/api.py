"""The REST application as a page asks it: in this process, with the session of who looks at the page.

Knows no page. What REST refuses is a `RefusalError` with REST's own text.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx

from iothub.base.text import path_part
from iothub.rest.edge import PREFIX

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp

Json = dict[str, Any]
TIMEOUT_S = 40.0  # longer than the API waits for a hub
_MOST_ERRORS = 20


class RefusalError(Exception):
    """REST has refused: its status, its stable code, its text, and the fields that are wrong."""

    def __init__(self, status: int, code: str, detail: str, errors: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list. `following`: the path of the next one; empty: this is the last."""

    items: list[Json]
    following: str
    more: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shown:
    """An object, and its ETag."""

    row: Json
    etag: str


class Api:
    """Requests with the cookie of one browser; what an answer sets is for that browser alone, and not kept here."""

    def __init__(self, app: ASGIApp, cookie: str, address: tuple[str, int], origin: str) -> None:
        headers = {"Cookie": cookie} if cookie else {}
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app, client=address),
            base_url=origin,
            headers={**headers, "Origin": origin},
            timeout=TIMEOUT_S,
            trust_env=False,
        )

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        text: bytes | None = None,
    ) -> httpx.Response:
        """Make one request below /api/v1. Raises RefusalError."""
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        target = PREFIX + path + (f"{'&' if '?' in path else '?'}{urlencode(given)}" if given else "")
        content = text if text is not None else None if body is None else json.dumps(body).encode()
        kind = {} if content is None else {"Content-Type": "text/csv" if text is not None else "application/json"}
        answer = await self._client.request(method, target, content=content, headers={**kind, **(headers or {})})
        if answer.is_error:
            raise _refusal(answer)
        return answer

    async def get(self, path: str, **query: object) -> Json:
        """Return one object. Raises RefusalError."""
        return _object(await self.send("GET", path, query=query))

    async def show(self, path: str, **query: object) -> Shown:
        """Return one object with its ETag, for a change with `If-Match`. Raises RefusalError."""
        answer = await self.send("GET", path, query=query)
        return Shown(_object(answer), answer.headers.get("etag", ""))

    async def page(self, path: str, **query: object) -> Page:
        """Return a page of a list; `path` may be that of a next page. Raises RefusalError."""
        answer = await self.send("GET", path, query=query)
        more = _object(answer)
        if not isinstance(more.get("items"), list):
            raise RefusalError(422, "invalid", f"{path} is no list")
        following = str(answer.links.get("next", {}).get("url", "")).removeprefix(PREFIX)
        return Page(more.pop("items"), following, more)

    async def pages(self, path: str, *, limit: int = 1000) -> AsyncIterator[list[Json]]:
        """Give all rows of a list, a page at a time. Raises RefusalError."""
        found = await self.page(path, limit=limit)
        yield found.items
        while found.following:
            found = await self.page(found.following)
            yield found.items

    async def text(self, path: str, **query: object) -> str:
        return (await self.send("GET", path, query=query)).text

    async def post(self, path: str, body: object = None, **options: Any) -> Json:
        return _object(await self.send("POST", path, body, **options))

    async def put(self, path: str, body: object = None, **options: Any) -> Json:
        return _object(await self.send("PUT", path, body, **options))

    async def patch(self, path: str, body: object, *, etag: str = "") -> Json:
        return _object(await self.send("PATCH", path, body, headers={"If-Match": etag} if etag else {}))

    async def delete(self, path: str, *, etag: str = "", **query: object) -> Json:
        return _object(await self.send("DELETE", path, query=query, headers={"If-Match": etag} if etag else {}))


def api_for(app: ASGIApp, request: HTTPConnection) -> Api:
    """Return REST with the login of the browser that makes this request."""
    address = (request.client.host, request.client.port) if request.client else ("", 0)
    return Api(app, request.headers.get("cookie", ""), address, origin_of(request))


def origin_of(request: HTTPConnection) -> str:
    """Return the origin that the browser sees, such as http://127.0.0.1:8081."""
    scheme = {"ws": "http", "wss": "https"}.get(request.url.scheme, request.url.scheme)
    return f"{scheme}://{request.url.netloc}"


def part(text: object) -> str:
    """Return a part of a path, whatever characters it has.

    >>> part("a/b c")
    'a%2Fb%20c'
    """
    return path_part(str(text))


def _object(answer: httpx.Response) -> Json:
    if not answer.content:
        return {}
    found = answer.json()
    return found if isinstance(found, dict) else {"items": found}


def _refusal(answer: httpx.Response) -> RefusalError:
    try:
        found = answer.json()
        detail, errors = str(found["detail"]), tuple(_error(each) for each in found.get("errors") or ())
        if errors and errors[0] in detail:  # of fields: it names the first ones, one after the other
            detail, *others = errors
            errors = tuple(others)
        return RefusalError(answer.status_code, str(found["code"]), detail, errors[:_MOST_ERRORS])
    except (ValueError, KeyError, TypeError, AttributeError):
        return RefusalError(answer.status_code, "failed", f"the API has answered {answer.status_code}")


def _error(given: Mapping[str, object]) -> str:
    """Write what is wrong with a field; where the field was sent is of no use in a form."""
    place = str(given.get("field") or "").removeprefix("body.")
    return f"{place}: {given.get('detail')}" if place else str(given.get("detail"))
