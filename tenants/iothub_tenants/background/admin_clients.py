"""What an administrator asks about the clients that are connected: who they are, which of them have most waiting, and to put one out.

Fulfils those verbs of `iothub.records.admin_commands.Verb`, for this hub alone: `iothub.hub.cluster.every_hub` asks the others. Knows no transport.
A connection is described by what its session and the engine have anyway: nothing is counted for it while messages flow.
"""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from iothub.base import log as logging
from iothub.base.errors import ConfigError, NotFoundError
from iothub.base.reasons import Reason
from iothub.engine.plane import Plane
from iothub.engine.router import Router
from iothub.engine.sessions import Sessions
from iothub.engine.state import Connection, Session
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs, no_tenant
from iothub_services.auth.port import Run, TenantRecord
from iothub_tenants.broker.brokers import Brokers

CLIENTS = 128  # in a piece of an answer
SUBSCRIPTIONS = 256  # the same

FindTenant = Callable[[str], Awaitable[TenantRecord | None]]
ApplyChanges = Callable[[], Awaitable[None]]

log = logging.get(__name__)


class _Client(NamedTuple):
    """A session and its connection, which may end meanwhile: it is described as it was found."""

    session: Session
    connection: Connection


class AdminClients:
    """On the reactor thread. Invariant: `client.kick` is preceded by every change that was made in the accounts before it."""

    def __init__(
        self,
        *,
        brokers: Brokers,
        plane: Plane,
        find_tenant: FindTenant,
        apply_changes: ApplyChanges,
        run: Run,
        node: int,
    ) -> None:
        self._brokers = brokers
        self._plane = plane
        self._find_tenant = find_tenant
        self._apply_changes = apply_changes
        self._run = run
        self._node = node
        self.verbs: Verbs = {
            Verb.CLIENT_LIST: self._list,
            Verb.CLIENT_TOP: self._top,
            Verb.CLIENT_SHOW: self._show,
            Verb.CLIENT_KICK: self._kick,
        }

    async def _list(self, request: Request, reply: Reply) -> Json:
        after, limit = request.text("after"), request.number("limit")
        sessions = list((await self._sessions(request)).awake.values())
        await self._send(await self._run("housekeeping.clients", _first, sessions, after, limit), reply)
        return {}

    async def _top(self, request: Request, reply: Reply) -> Json:
        count, limit = _COUNTS.get(request.text("by")), request.number("limit")
        if count is None:
            raise ConfigError(f"{request.verb}: by: expected {' or '.join(_COUNTS)}")
        sessions = list((await self._sessions(request)).awake.values())
        await self._send(await self._run("housekeeping.clients", _most, sessions, count, limit), reply)
        return {}

    async def _show(self, request: Request, reply: Reply) -> Json:
        client = self._found(request, await self._sessions(request))
        subscriptions: list[Json] = [
            {
                "group": None if group is None else group.decode(errors="replace"),
                "filter": topic_filter.decode(errors="replace"),
                "qos": subscription.qos,
                "no_local": subscription.no_local,
            }
            for (group, topic_filter), subscription in client.session.subscriptions.items()
        ]
        described = self._described(client)
        for start in range(0, len(subscriptions), SUBSCRIPTIONS):
            await reply.rows(subscriptions[start : start + SUBSCRIPTIONS])
        return described

    async def _kick(self, request: Request, _reply: Reply) -> Json:
        await self._apply_changes()
        client = self._found(request, await self._sessions(request))
        described = self._described(client)
        self._plane.close(client.connection, Reason.ADMINISTRATIVE)
        log.info("client kicked", tenant=request.tenant, client_id=client.session.client_id)
        return described

    async def _sessions(self, request: Request) -> Sessions:
        """Return the tenant's sessions; a tenant whose broker is not here has none."""
        tenant = await self._find_tenant(request.tenant)
        if tenant is None:
            raise no_tenant(request.tenant)
        broker = self._brokers.present(tenant.id)
        return Sessions(Router()) if broker is None else broker.plane.sessions

    def _found(self, request: Request, sessions: Sessions) -> _Client:
        """Raises NotFoundError: this hub has no such client."""
        tenant, client_id = request.tenant, request.text("client_id")
        session = sessions.get(client_id)
        for client in _connected(() if session is None else (session,)):
            return client
        kept = ""
        if session is not None and session.is_persistent:
            kept = f"; its session is kept: `iothub session show {tenant} {shlex.quote(client_id)}`"
        raise NotFoundError(
            f"tenant {tenant} has no connected client {client_id!r}; `iothub client list {tenant}` shows them{kept}"
        )

    async def _send(self, clients: Sequence[_Client], reply: Reply) -> None:
        for start in range(0, len(clients), CLIENTS):
            await reply.rows([self._described(client) for client in clients[start : start + CLIENTS]])

    def _described(self, client: _Client) -> Json:
        session, connection = client
        return {
            "client_id": session.client_id,
            "device": session.device,
            "address": connection.peer,
            "listener": connection.listener.name,
            "protocol_version": connection.version,
            "connected_at_ms": session.connected_at_ms,
            "keep_alive_s": connection.keep_alive_s,
            "is_persistent": session.is_persistent,
            "session_expiry_s": session.control.expiry_s,
            "subscriptions": len(session.subscriptions),
            "queued": _queued(client),
            "in_flight": _in_flight(client),
            "unsent_bytes": len(connection.out),
            "node": self._node,
        }


def _connected(sessions: Iterable[Session]) -> Iterable[_Client]:
    for session in sessions:
        connection = session.connection
        if connection is not None and not connection.is_closing:
            yield _Client(session, connection)


def _first(sessions: Sequence[Session], after: str, count: int) -> list[_Client]:
    """Return the first connected clients behind a client id. In a thread: a tenant may have a million."""
    following = (client for client in _connected(sessions) if client.session.client_id > after)
    return heapq.nsmallest(count, following, key=lambda client: client.session.client_id)


def _most(sessions: Sequence[Session], count_of: Callable[[_Client], int], count: int) -> list[_Client]:
    """Return the connected clients with the largest counts, none with 0. In a thread, too."""
    return heapq.nlargest(count, filter(count_of, _connected(sessions)), key=count_of)


def _queued(client: _Client) -> int:
    """Return how many messages wait, and were not sent yet; of a persistent session at most so many, as its queue may have gaps."""
    session = client.session
    if session.window is None or not session.is_persistent:
        return session.backlog_length()
    return max(session.announced - session.window.taken, 0) + session.backlog_qos0


def _in_flight(client: _Client) -> int:
    """Return how many messages were sent and are not acknowledged yet."""
    return 0 if client.session.window is None else client.session.window.in_flight


_COUNTS: Mapping[str, Callable[[_Client], int]] = {"queue": _queued, "in-flight": _in_flight}
