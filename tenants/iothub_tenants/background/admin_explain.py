"""What an administrator asks about an attempt that nobody makes: would it be allowed at this hub, and what decides.

Fulfils those verbs of `iothub.records.admin_commands.Verb`, for this hub alone: `iothub.hub.cluster.every_hub` asks the others. Decides nothing:
`iothub_tenants.control.explain` does, by what the packet handlers use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from iothub.base.errors import ConfigError
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs
from iothub_tenants.broker.hub import Hub
from iothub_tenants.control.explain import Explain, Step, WouldConnect, WouldPublish, WouldSubscribe

ROWS = 100  # in a piece of an answer
MOST_QOS = 2

ApplyChanges = Callable[[], Awaitable[None]]


class AdminExplain:
    """On the reactor thread. Every change that was made in the accounts before is in the answer."""

    def __init__(self, hub: Hub, apply_changes: ApplyChanges, node: int) -> None:
        self._explain = Explain(hub)
        self._apply_changes = apply_changes
        self._node = node
        self.verbs: Verbs = {
            Verb.EXPLAIN_CONNECT: self._connect,
            Verb.EXPLAIN_PUBLISH: self._publish,
            Verb.EXPLAIN_SUBSCRIBE: self._subscribe,
        }

    async def _connect(self, request: Request, reply: Reply) -> Json:
        asked = WouldConnect(
            tenant=request.tenant,
            device=request.text("device"),
            client_id=request.text("client_id"),
            address=request.text("address"),
            has_certificate=request.flag("has_certificate"),
            is_persistent=request.flag("is_persistent"),
        )
        await self._apply_changes()
        return await self._send(await self._explain.connect(asked), reply)

    async def _publish(self, request: Request, reply: Reply) -> Json:
        asked = WouldPublish(
            tenant=request.tenant,
            device=request.text("device"),
            client_id=request.text("client_id"),
            topic=request.text("topic"),
            qos=_qos(request),
            is_retained=request.flag("is_retained"),
            size=request.number("size"),
        )
        await self._apply_changes()
        return await self._send(await self._explain.publish(asked), reply)

    async def _subscribe(self, request: Request, reply: Reply) -> Json:
        asked = WouldSubscribe(
            tenant=request.tenant,
            device=request.text("device"),
            client_id=request.text("client_id"),
            topic_filter=request.text("filter"),
            qos=_qos(request),
        )
        await self._apply_changes()
        return await self._send(await self._explain.subscribe(asked), reply)

    async def _send(self, steps: Sequence[Step], reply: Reply) -> Json:
        rows = [
            {
                "node": self._node,
                "step": step.name,
                "outcome": step.outcome.value,
                "reason": step.reason,
                "rule": step.rule,
            }
            for step in steps
        ]
        for start in range(0, len(rows), ROWS):
            await reply.rows(rows[start : start + ROWS])
        return {}


def _qos(request: Request) -> int:
    qos = request.number("qos")
    if qos > MOST_QOS:
        raise ConfigError(f"{request.verb}: qos: expected 0, 1 or 2")
    return qos
