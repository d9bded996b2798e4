"""What an administrator has a running hub do: end a session, empty a queue, delete retained messages, lift bans; and what it has in memory.

Fulfils those verbs of `iothub.records.admin_commands.Verb`, for this hub alone: `iothub.hub.cluster.every_hub` asks the others. Knows no transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from iothub.base import log as logging
from iothub.base.errors import IotHubError, NotFoundError
from iothub.base.reasons import Drop
from iothub.engine.filters import check_topic_filter
from iothub.engine.state import Session
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs, no_tenant
from iothub_services.auth.failures import source_of
from iothub_services.auth.port import TenantRecord
from iothub_services.awaited import AwaitedQueues
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.retaining import Progress
from iothub_tenants.identity import invalid_filter

PROGRESS_INTERVAL_S = 0.5
_PURGE_PAUSE_S = 0.005  # between slices: others publish meanwhile

ShowStream = Callable[[str, str], Json | None]
FindTenant = Callable[[str], Awaitable[TenantRecord | None]]
ApplyChanges = Callable[[], Awaitable[None]]
Pause = Callable[[float], Awaitable[object]]

log = logging.get(__name__)


class AdminCommands:
    """On the reactor thread.

    Invariant: a change that was made in the accounts before a verb that changes something is read before it, and applied if that does not
    take long. What a caller does not wait for any more is done all the same.
    """

    def __init__(
        self,
        hub: Hub,
        queues: AwaitedQueues,
        find_tenant: FindTenant,
        apply_changes: ApplyChanges,
        show_stream: ShowStream,
        pause: Pause,
        node: int,
    ) -> None:
        """`show_stream`: describes a stream of this hub by tenant and name; None from it: this hub does not know the stream."""
        self._hub = hub
        self._queues = queues
        self._find_tenant = find_tenant
        self._apply_changes = apply_changes
        self._stream_facts = show_stream
        self._pause = pause
        self._node = node
        self.verbs: Verbs = {
            Verb.ACCOUNTS_APPLY: self._apply,
            Verb.SESSION_DISCARD: self._discard,
            Verb.QUEUE_PURGE: self._purge,
            Verb.RETAIN_DELETE: self._delete_retained,
            Verb.BAN_LIST: self._list_bans,
            Verb.BAN_LIFT: self._lift_bans,
            Verb.STREAM_SHOW: self._show_stream,
        }

    async def _apply(self, _request: Request, _reply: Reply) -> Json:
        await self._apply_changes()
        return {}

    async def _discard(self, request: Request, _reply: Reply) -> Json:
        tenant, client_id = request.tenant, request.text("client_id")
        broker = await self._broker(tenant)
        if not await self._hub.sessions.discard(broker, client_id, "operator"):
            raise NotFoundError(
                f"tenant {tenant} has no session {client_id!r}; `iothub session list {tenant}` shows them"
            )
        return {}

    async def _purge(self, request: Request, reply: Reply) -> Json:
        tenant, client_id = request.tenant, request.text("client_id")
        broker = await self._broker(tenant)
        session = broker.plane.sessions.get(client_id)
        if session is None or not session.is_persistent:
            raise NotFoundError(
                f"tenant {tenant} has no queue of {client_id!r}; `iothub queue list {tenant}` shows them"
            )
        return {"messages": await self._purge_queue(broker, session, self._progress_to(reply))}

    async def _purge_queue(self, broker: TenantBroker, session: Session, on_progress: Progress) -> int:
        """Remove slice after slice what is there now, and count what is gone, however it ends."""
        waiting = (await self._queues.stats(session.queue_id)).messages
        count = upto = 0
        try:
            while True:
                try:
                    removed, upto = await self._queues.purge(session.queue_id, upto)
                except NotFoundError:
                    if not count:
                        raise
                    return count  # the session has ended meanwhile, and its queue with it
                count += removed
                if not upto:
                    return count
                await on_progress(count, max(waiting, count))
                await self._pause(_PURGE_PAUSE_S)
        finally:
            if count:
                self._hub.plane.turn.drop(broker.plane, session, Drop.PURGED, count)

    async def _delete_retained(self, request: Request, reply: Reply) -> Json:
        topic_filter = request.text("filter")
        if check_topic_filter(topic_filter.encode(), 65_536, 65_535):
            raise invalid_filter(topic_filter)
        broker = await self._broker(request.tenant)
        return {"messages": await broker.retained.delete(topic_filter.encode(), self._progress_to(reply))}

    def _progress_to(self, reply: Reply) -> Progress:
        clock, reported_at = self._hub.clock, self._hub.clock.monotonic()

        async def report(done: int, of: int) -> None:
            nonlocal reported_at
            if clock.monotonic() - reported_at < PROGRESS_INTERVAL_S:
                return
            reported_at = clock.monotonic()
            with suppress(IotHubError):  # nobody listens any more: the work goes on all the same
                await reply.rows([{"node": self._node, "done": done, "total": of}])

        return report

    async def _list_bans(self, request: Request, reply: Reply) -> Json:
        failures, limit = self._hub.authenticator.failures, request.number("limit")
        bans, now = failures.bans(request.tenant), self._hub.clock.wall()
        rows: list[Json] = [
            {"device": ban.device, "address": ban.address, "until_ms": int((now + ban.left_s) * 1000)}
            for ban in bans[:limit]
        ]
        await reply.rows(rows)
        reason = f"{failures.settings.failures} failed logins within {failures.settings.window_s:g} s"
        return {"left_out": len(bans) - len(rows), "reason": reason}

    async def _lift_bans(self, request: Request, _reply: Reply) -> Json:
        tenant, device = request.tenant, request.text("device")
        address = None if request.argument.get("address") is None else request.text("address")
        source = None if address is None else source_of(address)
        count = self._hub.authenticator.failures.lift(tenant, device, source)
        if not count:
            whence = "" if address is None else f" from {address}"
            raise NotFoundError(
                f"device {device!r} of tenant {tenant} is not banned for failed logins{whence}; `iothub ban list {tenant}` shows them"
            )
        log.info("failure bans lifted", tenant=tenant, device=device, address=source, count=count)
        return {"bans": count}

    async def _show_stream(self, request: Request, _reply: Reply) -> Json:
        name = request.text("name")
        found = self._stream_facts(request.tenant, name)
        if found is None:
            raise NotFoundError(f"this hub has not heard of stream {name!r} of tenant {request.tenant} yet")
        return found

    async def _broker(self, tenant: str) -> TenantBroker:
        """Return a tenant's broker, with the accounts as they are now. Raises NotFoundError, UnavailableError."""
        await self._apply_changes()
        record = await self._find_tenant(tenant)
        if record is None:
            raise no_tenant(tenant)
        return await self._hub.brokers.broker(record)
