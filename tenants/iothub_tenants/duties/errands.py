"""What the CLI asks of the running hub through the command table: done here, answered there.

Knows no SQL beyond "take" and "answer", which are handed in; the verbs are `iothub.verbs`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from iothub.engine.filters import check_topic_filter
from iothub.errors import ConfigError, IotHubError, NotFoundError
from iothub.reasons import Drop
from iothub.verbs import Verb
from iothub_services.auth.port import TenantRecord
from iothub_services.awaited import AwaitedQueues
from iothub_tenants.accounts.commands import Command
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub

Json = Mapping[str, object]
Answer = Callable[[int, Json], Awaitable[None]]
Fail = Callable[[int, IotHubError], Awaitable[None]]
FindTenant = Callable[[str], Awaitable[TenantRecord | None]]


class Errands:
    """Runs commands one after another."""

    def __init__(self, hub: Hub, queues: AwaitedQueues, find_tenant: FindTenant, facts: Callable[[], Json]) -> None:
        self._hub = hub
        self._queues = queues
        self._find_tenant = find_tenant
        self._facts = facts
        self._verbs: dict[str, Callable[[str, Json], Awaitable[Json]]] = {
            Verb.PING: self._ping,
            Verb.SESSION_DISCARD: self._discard,
            Verb.QUEUE_PURGE: self._purge,
            Verb.RETAIN_DELETE: self._delete_retained,
        }

    async def run(self, commands: list[Command], answer: Answer, fail: Fail) -> None:
        for command in commands:
            try:
                verb = self._verbs.get(command.verb)
                if verb is None:
                    raise ConfigError(f"this hub does not know the command {command.verb!r}: it is of another version")
                result = await verb(command.tenant, command.argument)
            except IotHubError as error:
                await fail(command.id, error)
            else:
                await answer(command.id, result)

    async def _ping(self, _tenant: str, _argument: Json) -> Json:
        return self._facts()

    async def _discard(self, tenant: str, argument: Json) -> Json:
        client_id = str(argument["client_id"])
        broker = await self._broker(tenant)
        if not await self._hub.sessions.discard(broker, client_id, "operator"):
            raise NotFoundError(f"tenant {tenant} has no session {client_id!r}; `iothub session list {tenant}`")
        return {}

    async def _purge(self, tenant: str, argument: Json) -> Json:
        client_id = str(argument["client_id"])
        broker = await self._broker(tenant)
        session = broker.plane.sessions.get(client_id)
        if session is None or not session.is_persistent:
            raise NotFoundError(f"tenant {tenant} has no queue of {client_id!r}; `iothub queue list {tenant}`")
        count = await self._queues.purge(session.queue_id)
        if count:
            self._hub.plane.turn.drop(broker.plane, session, Drop.PURGED, count)
        return {"messages": count}

    async def _delete_retained(self, tenant: str, argument: Json) -> Json:
        topic_filter = str(argument["filter"]).encode()
        if check_topic_filter(topic_filter, 65_536, 65_535):
            raise ConfigError(f"{argument['filter']!r} is no Topic Filter: expected levels, + and a last #")
        broker = await self._broker(tenant)
        return {"messages": await broker.retained.delete(topic_filter)}

    async def _broker(self, tenant: str) -> TenantBroker:
        record = await self._find_tenant(tenant)
        if record is None:
            raise NotFoundError(f"there is no tenant {tenant!r}; `iothub tenant list`")
        return await self._hub.brokers.broker(record)
