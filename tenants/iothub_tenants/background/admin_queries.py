"""What an administrator reads in a running hub: persistent sessions, their queues, retained messages.

Fulfils those verbs of `iothub.records.admin_commands.Verb` that only read. Knows no transport and prints nothing: plain rows go to a `Reply`,
at its pace.
Stores are read a page at a time, in their own threads; between two pages others get their turns.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Sequence

from iothub.base.errors import ConfigError, NotFoundError, UnavailableError
from iothub.engine.filters import check_topic_filter, topic_matches
from iothub.engine.router import Router
from iothub.engine.sessions import PackedSession, Sessions
from iothub.engine.state import Session
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs, message_rows, no_tenant
from iothub.records.events import number_of_hub
from iothub.records.state import SessionState
from iothub_services.auth.port import Run, TenantRecord
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.connections.rejected import Rejected, RejectedConnects
from iothub_services.queues.port import QueueStats, StaleEpochError
from iothub_services.retained.port import RetainedTopic
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.identity import invalid_filter, shown

SESSIONS = 128  # whose states, or queues, are read at once
SUBSCRIPTIONS = 256  # in a piece of an answer
TOPICS = 500  # that are read at once
REJECTED = 128  # in a piece of an answer
_QUEUE_BYTES = 4 << 20  # of messages that are shown at once
_MOST_BYTES = 65_535  # §1.5.4: the longest UTF-8 string of the protocol

FindTenant = Callable[[str], Awaitable[TenantRecord | None]]
StatesOf = Callable[[Sequence[tuple[int, str]]], Awaitable[list[SessionState]]]
"""`await states_of([(tenant_id, client_id), ...])`: those of these persistent sessions that have not ended, in this order."""

_Found = tuple[str, Session | PackedSession]
"""A session by its Client Identifier."""

DriverOf = Callable[[int], str | None]
"""`driver_of(queue_id)`: the name of the driver that has a queue."""


class AdminQueries:
    """On the reactor thread."""

    def __init__(  # noqa: PLR0913 - where the answers are, all by name
        self,
        *,
        find_tenant: FindTenant,
        brokers: Brokers,
        queues: AwaitedQueues,
        retained: AwaitedRetained,
        catch_up: Callable[[], Awaitable[None]],
        states_of: StatesOf,
        driver_of: DriverOf,
        rejected: RejectedConnects,
        run: Run,
    ) -> None:
        """`catch_up`: what other hubs have begun and ended is known here when it returns; raises UnavailableError."""
        self._find_tenant = find_tenant
        self._brokers = brokers
        self._queues = queues
        self._retained = retained
        self._catch_up = catch_up
        self._states_of = states_of
        self._driver_of = driver_of
        self._rejected = rejected
        self._run = run
        self.verbs: Verbs = {
            Verb.SESSION_LIST: self._list_sessions,
            Verb.SESSION_SHOW: self._show_session,
            Verb.QUEUE_LIST: self._list_queues,
            Verb.QUEUE_SHOW: self._show_queue,
            Verb.RETAIN_LIST: self._list_retained,
            Verb.RETAIN_COUNT: self._count_retained,
            Verb.RETAIN_SHOW: self._show_retained,
            Verb.REJECTED_LIST: self._list_rejected,
        }

    # --- sessions

    async def _list_sessions(self, request: Request, reply: Reply) -> Json:
        tenant_id = (await self._tenant(request)).id
        page, following = await self._page(request)
        for start in range(0, len(page), SESSIONS):
            keys = [(tenant_id, client_id) for client_id, _ in page[start : start + SESSIONS]]
            states = await self._states_of(keys)
            queues = await self._queues_of([state.queue_id for state in states])
            await reply.rows([_session(state, queues.get(state.queue_id)) for state in states])
        return {"next": following}

    async def _show_session(self, request: Request, reply: Reply) -> Json:
        tenant_id, client_id = (await self._tenant(request)).id, request.text("client_id")
        states = await self._states_of([(tenant_id, client_id)])
        if not states:
            raise _no_session(request.tenant, client_id)
        (state,) = states
        subscriptions: list[Json] = [
            {"group": group, "filter": topic_filter, "qos": options.qos, "no_local": options.no_local}
            for (group, topic_filter), options in state.subscriptions.items()
        ]
        for start in range(0, len(subscriptions), SUBSCRIPTIONS):
            await reply.rows(subscriptions[start : start + SUBSCRIPTIONS])
        return _session(state, (await self._queues_of([state.queue_id])).get(state.queue_id))

    async def _page(self, request: Request) -> tuple[list[_Found], str | None]:
        """Return the next persistent sessions by client id, and the last one's if more follow."""
        after, limit = request.text("after"), request.number("limit")
        sessions = (await self._sessions(request)).items()
        found = await self._run("housekeeping.sessions", _first, sessions, after, limit + 1)
        page = found[:limit]
        return page, page[-1][0] if page and len(found) > limit else None

    # --- queues

    async def _list_queues(self, request: Request, reply: Reply) -> Json:
        page, following = await self._page(request)
        for start in range(0, len(page), SESSIONS):
            part = page[start : start + SESSIONS]
            queues = await self._queues_of([session.queue_id for _, session in part])
            rows = [(client_id, queues.get(session.queue_id)) for client_id, session in part]
            await reply.rows([{"client_id": client_id, **queue} for client_id, queue in rows if queue is not None])
        return {"next": following}

    async def _show_queue(self, request: Request, reply: Reply) -> Json:
        client_id, count = request.text("client_id"), request.number("messages")
        session = (await self._sessions(request)).get(client_id)
        if session is None or not session.is_persistent:
            raise NotFoundError(
                f"tenant {request.tenant} has no queue of {client_id!r}; `iothub queue list {request.tenant}` shows them"
            )
        stats = await self._queues.stats(session.queue_id)
        if count:
            await self._send_oldest(client_id, stats, count, reply)
        return self._standing(stats)

    async def _send_oldest(self, client_id: str, stats: QueueStats, count: int, reply: Reply) -> None:
        try:
            page = await self._queues.read(stats.queue_id, stats.epoch, stats.head, count, _QUEUE_BYTES)
        except StaleEpochError:
            raise UnavailableError(f"session {client_id!r} was just taken over; try again") from None
        for record in page.records:
            facts = {"position": record.position, "qos": record.qos, "expires_at_ms": record.expires_at_ms}
            for row in message_rows(facts, record.body):
                await reply.rows([row])

    async def _queues_of(self, queue_ids: list[int]) -> dict[int, Json]:
        """Return how queues stand, without those that are lost."""
        return {queue_id: self._standing(stats) for queue_id, stats in (await self._queues.stats_of(queue_ids)).items()}

    def _standing(self, stats: QueueStats) -> Json:
        limits = stats.limits
        return {
            "queue_id": stats.queue_id,
            "driver": self._driver_of(stats.queue_id),
            "messages": stats.messages,
            "bytes": stats.bytes,
            "head": stats.head,
            "tail": stats.tail,
            "epoch": stats.epoch,
            "limits": {"messages": limits.messages, "bytes": limits.bytes, "overflow": limits.overflow.word},
        }

    # --- retained messages

    async def _list_retained(self, request: Request, reply: Reply) -> Json:
        matches, left = _Filter(request, is_everything_shown=True), request.number("limit")
        tenant_id, after = (await self._tenant(request)).id, request.text("after").encode()
        last: str | None = None
        while page := await self._retained.page(tenant_id, after, TOPICS):
            found = [topic for topic in page if matches(topic)]
            shown = [_topic(topic) for topic in found[:left]]
            await reply.rows(shown)
            last = str(shown[-1]["name"]) if shown else last
            if len(found) > left:
                return {"next": last}
            left -= len(found)
            after = page[-1].topic
        return {"next": None}

    async def _count_retained(self, request: Request, reply: Reply) -> Json:
        tenant_id, matches = (await self._tenant(request)).id, _Filter(request)
        after, count = b"", 0
        while page := await self._retained.page(tenant_id, after, TOPICS):
            count += sum(map(matches, page))
            after = page[-1].topic
            await reply.rows([])
        return {"messages": count}

    async def _show_retained(self, request: Request, reply: Reply) -> Json:
        tenant_id, topic = (await self._tenant(request)).id, request.text("topic")
        bodies = await self._retained.fetch(tenant_id, [topic.encode()])
        if not bodies:
            raise NotFoundError(
                f"tenant {request.tenant} has no retained message on {topic!r}; "
                f"`iothub retain list {request.tenant}` shows them"
            )
        for row in message_rows({}, bodies[0].body):
            await reply.rows([row])
        return {"version": bodies[0].version}

    # --- refused CONNECTs

    async def _list_rejected(self, request: Request, reply: Reply) -> Json:
        if request.argument.get("is_unknown") is True:
            found = self._rejected.without_tenant()
        else:
            tenant = await self._tenant(request)
            found = self._rejected.of_tenant(tenant.id, tenant.name)
        for start in range(0, len(found), REJECTED):
            await reply.rows([_rejected(each) for each in found[start : start + REJECTED]])
        return {}

    # --- whose

    async def _sessions(self, request: Request) -> Sessions:
        """Return the tenant's sessions, those of other hubs too; a tenant whose broker is not here has none."""
        tenant = await self._tenant(request)
        await self._catch_up()
        broker = self._brokers.present(tenant.id)
        return Sessions(Router()) if broker is None else broker.plane.sessions

    async def _tenant(self, request: Request) -> TenantRecord:
        record = await self._find_tenant(request.tenant)
        if record is None:
            raise no_tenant(request.tenant)
        return record


class _Filter:
    """Whether a topic matches the Topic Filter of a request. Raises ConfigError: it is none.

    `#` leaves out those that begin with $ [MQTT-4.7.2-1], unless `is_everything_shown`.
    """

    def __init__(self, request: Request, *, is_everything_shown: bool = False) -> None:
        given = request.text("filter")
        self._filter = given.encode()
        self._is_everything = is_everything_shown and given == "#"
        if given.startswith("$share/"):
            raise ConfigError(f"topic filter {shown(given)} is not valid: give it without $share/GROUP/")
        if check_topic_filter(self._filter, _MOST_BYTES, _MOST_BYTES):
            raise invalid_filter(given)

    def __call__(self, topic: RetainedTopic) -> bool:
        return self._is_everything or topic_matches(self._filter, topic.topic)


def _first(sessions: Sequence[_Found], after: str, count: int) -> list[_Found]:
    """Return the first persistent sessions behind a client id. In a thread: a tenant may have a million."""
    following = (each for each in sessions if each[1].is_persistent and each[0] > after)
    return heapq.nsmallest(count, following, key=lambda each: each[0])


def _session(state: SessionState, queue: Json | None) -> Json:
    return {
        "client_id": state.client_id,
        "device": state.device,
        "is_connected": state.is_connected,
        "protocol_version": state.protocol_version,
        "subscriptions": len(state.subscriptions),
        "queue_id": state.queue_id,
        "queue": queue,
        "created_at_ms": state.created_at_ms,
        "connected_at_ms": state.connected_at_ms,
        "disconnected_at_ms": state.disconnected_at_ms,
        "disconnect_reason": state.disconnect_reason,
        "session_expiry_s": state.session_expiry_s,
        "node": number_of_hub(state.hub),
        "will": None if state.will is None else {"topic": state.will.topic, "qos": state.will.qos},
    }


def _rejected(found: Rejected) -> Json:
    client = found.client
    return {
        "at_ms": found.at_ms,
        "tenant": client.tenant,
        "device": client.device,
        "client_id": client.client_id,
        "address": client.address,
        "listener": client.listener,
        "protocol_version": client.version,
        "reason": found.reason,
        "rule": found.rule,
    }


def _topic(found: RetainedTopic) -> Json:
    return {
        "name": _name(found.topic),
        "bytes": found.size,
        "version": found.version,
        "expires_at_ms": found.expires_at_ms,
    }


def _name(topic: bytes) -> str:
    return topic.decode(errors="replace")


def _no_session(tenant: str, client_id: str) -> NotFoundError:
    return NotFoundError(
        f"tenant {tenant} has no persistent session {client_id!r}; `iothub session list {tenant}` shows them"
    )
