"""When open pages end: with their login, which may be over or its user disabled, or since no browser holds them; and what that leaves.

A page that has ended shows nothing more and keeps no connection.

Knows no page; what a page holds is given back by what it has registered with `client.on_delete`, which may be called twice.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from nicegui import Client, ui

from iothub.base import log as logging
from iothub.dashboard.api import RefusalError, api_for
from iothub.rest import cookies
from iothub.rest.edge import UNUSED

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

EVERY_S = 5.0
UNCONNECTED_S = 15.0  # in which a browser loads a page and connects; a slower one loads it again, with its files cached
COLLECT_S, COLLECT_PAGES = (
    60.0,
    100,
)  # a page is some thousand objects in cycles; looking for them stops the process for a moment
_UNAUTHENTICATED = 401

log = logging.get(__name__)


def end(token: str | None) -> None:
    """End the open pages of this login; the browser goes to the login page."""
    for client in list(Client.instances.values()):
        if token is not None and cookies.read(client.request.scope) == token:
            with client:
                ui.navigate.to("/login")
            for handler in client.delete_handlers:
                client.safe_invoke(handler)
            client.content.clear()  # its timers, too: a browser that stays gets nothing more


@asynccontextmanager
async def watching(rest: ASGIApp) -> AsyncIterator[None]:
    """Ask REST every few seconds whether the logins of open pages still are ones."""
    task = asyncio.create_task(_repeat(rest))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _repeat(rest: ASGIApp) -> None:
    garbage = Garbage()
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            Client.prune_instances(client_age_threshold=UNCONNECTED_S)
            garbage.look(set(Client.instances), time.monotonic())
            await look(rest)
        except Exception as error:  # the edge of a loop of its own
            log.error("looking for ended logins failed, will retry", exc_info=error)


class Garbage:
    """Collects what pages leave: once in a while, in place of in the middle of whatever page is made (`gc_tuning.settle`)."""

    def __init__(self) -> None:
        self._pages: set[str] = set()
        self._gone = 0
        self._collected_s = 0.0

    def look(self, pages: set[str], now_s: float) -> bool:
        """Collect if enough has gone since the last time, or some a while ago; `pages`: the ids of those that are there."""
        self._gone += len(self._pages - pages)
        self._pages = pages
        if self._gone < COLLECT_PAGES and not (self._gone and now_s - self._collected_s >= COLLECT_S):
            return False
        self._gone, self._collected_s = 0, now_s
        gc.collect()
        return True


async def look(rest: ASGIApp) -> None:
    """End the pages whose login is over. Looking is no use of a login: one that nobody uses ends while its page is open."""

    async def unused(scope: Scope, receive: Receive, send: Send) -> None:
        await rest({**scope, UNUSED: True}, receive, send)

    requests = {cookies.read(client.request.scope): client.request for client in list(Client.instances.values())}
    for token, request in requests.items():
        try:
            await api_for(unused, request).get("/whoami")
        except RefusalError as refusal:
            if refusal.status == _UNAUTHENTICATED:
                end(token)
