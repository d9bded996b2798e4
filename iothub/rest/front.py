"""Beside the API: pages for a browser, on every path that is not the API's; and what this process itself asks the API.

Knows no page.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from iothub.rest.caller import Caller
from iothub.rest.edge import PREFIX

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = ("/livez", "/readyz")  # of the API, without a key


class Pages(Protocol):
    """An ASGI application for browsers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run what it does beside requests."""
        ...


class MakePages(Protocol):
    """Makes the pages.

    `api`: the application with its edge; `own`: the same for the pages' own samples, with a role that reads metrics alone;
    `has_oidc`: an OpenID provider is set, to which people may be sent; `mqtt`: where the hub takes MQTT over TCP; empty: nowhere.
    """

    def __call__(self, api: ASGIApp, own: ASGIApp, *, has_oidc: bool, mqtt: Callable[[], str]) -> Pages: ...


class Front:
    """The API, and pages on the other paths."""

    def __init__(self, api: ASGIApp, pages: Pages) -> None:
        self._api = api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] != "lifespan" and not _is_of_api(scope["path"])
        await (self._pages if is_page else self._api)(scope, receive, send)


class Own:
    """The API without an edge, for requests of this process itself, as one caller."""

    def __init__(self, app: ASGIApp, caller: Caller) -> None:
        self._app = app
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "iothub.caller": self._caller, "iothub.body": b""}, receive, send)


def _is_of_api(path: str) -> bool:
    return path == PREFIX or path.startswith(f"{PREFIX}/") or path in OPEN
