"""Recovers every persistent session of the log when a hub starts, before the first client connects.

Knows no log and no fold: it is given the folded states. A session whose connection died with the hub gets the event of its disconnection, so
that its expiry and its Will begin.

Theory: a server may fail in the middle, for minutes. Each call of a store is repeated by itself until it is answered (`Retry`), so that nothing
is half loaded and nothing is loaded twice.

Invariant: what was read before such a wait is not trusted after it. Other hubs may have joined since, and a session or queue of theirs must not
be taken for one without an owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from iothub.base import log as logging
from iothub.base.gc_tuning import uncollected
from iothub.engine.state import Place
from iothub.records import events
from iothub.records.events import Subject, number_of_hub
from iothub.records.state import SessionState
from iothub_services.auth.port import Run, TenantRecord
from iothub_services.awaited import AwaitedQueues
from iothub_services.sessions.packing import pack
from iothub_services.sessions.port import HERE
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.background.restoring import restore
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.queue_bounds import QueueBounds

log = logging.get(__name__)

T = TypeVar("T")


class Retry(Protocol):
    """Does repeatable work, again and again until its servers have answered."""

    def __call__(self, work: Callable[[], Awaitable[T]], /) -> Awaitable[T]: ...


def run_once(work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Do the work once: it needs no server, or the caller does not wait for one."""
    return work()


def no_peers() -> frozenset[int]:
    return frozenset()


@dataclass(frozen=True, slots=True)
class Peers:
    """The other hubs on the same stores, at start. `number`: this hub's; `living`: of those that may live; `joined`: of all seen since.

    `read_again`: returns those of the given sessions that have not ended by now.
    """

    number: int
    living: frozenset[int]
    read_again: Callable[[list[SessionState]], Awaitable[list[SessionState]]]
    joined: Callable[[], frozenset[int]] = no_peers

    @property
    def exist(self) -> bool:
        return bool(self.living or self.joined())

    def holder_of(self, state: SessionState) -> int:
        """Return who has a session: its hub, if that may live; HERE: this hub, or one that is gone while there is no other."""
        number = number_of_hub(state.hub)
        if number in (None, self.number) or not (self.living or number in self.joined()):
            return HERE
        return int(number or 0)


class SessionRecovery:
    """Recovers sessions once, at start."""

    def __init__(
        self,
        hub: Hub,
        registry: Registry,
        queues: AwaitedQueues,
        bounds: QueueBounds,
        run: Run,
        *,
        last_heartbeat: float | None = None,
        retry: Retry = run_once,
    ) -> None:
        """`last_heartbeat`: of the hub before this one, in Unix seconds."""
        self._retry = retry
        self._last_heartbeat_ms = None if last_heartbeat is None else int(last_heartbeat * 1000)
        self._hub = hub
        self._registry = registry
        self._queues = queues
        self._bounds = bounds
        self._run = run

    async def load_sessions(self, states: Iterable[SessionState], peers: Peers | None) -> int:
        """Recover all sessions that have not ended; drop the queues without a session. Returns how many sessions there are.

        `peers`: None: no store is shared.
        """
        by_tenant: dict[int, list[SessionState]] = {}
        for state in states:
            by_tenant.setdefault(state.tenant_id, []).append(state)
        loaded = 0
        run = self._run
        for tenant_id in await self._retry(partial(run, "accounts.names", self._registry.tenant_names)):
            find = partial(run, "accounts.tenant", self._registry.tenant_by_id, tenant_id)
            record = await self._retry(find)
            if record is not None:
                loaded += await self._recover_tenant(record, by_tenant.get(tenant_id, []), peers)
        return loaded

    async def _recover_tenant(self, record: TenantRecord, states: list[SessionState], peers: Peers | None) -> int:
        listed = await self._retry(lambda: self._queues.list_queues(record.id))
        queues = {queue.queue_id for queue in listed}
        kept = [state for state in states if state.queue_id in queues]
        lost = [state for state in states if state.queue_id not in queues]
        if lost and peers is not None and peers.exist:  # they may have ended since they were read
            lost = await self._retry(partial(peers.read_again, lost))
            kept += [state for state in lost if peers.holder_of(state) != HERE]  # their hub handles them
            lost = [state for state in lost if peers.holder_of(state) == HERE]
        await self._end_sessions_without_queue(record, lost)
        if kept:
            broker = await self._retry(lambda: self._hub.brokers.broker(record))
            with uncollected():
                for state in kept:
                    self._recover_session(broker, state, peers)
            # Limits may have changed while no hub ran.
            await self._retry(lambda: self._bounds.apply_bounds(broker, listed))
        await self._drop_unused_queues(queues.difference(state.queue_id for state in kept), peers)
        return len(kept)

    async def _drop_unused_queues(self, queue_ids: Iterable[int], peers: Peers | None) -> None:
        """Drop queues whose session ended or was never created: the hub died in between."""
        for queue_id in queue_ids:
            if peers is not None and peers.exist:
                return  # another hub may be about to log the session of a new queue
            await self._retry(partial(self._queues.drop, queue_id))

    async def _end_sessions_without_queue(self, record: TenantRecord, states: list[SessionState]) -> None:
        """End sessions whose queue is lost, so that no message for them is acknowledged and stored nowhere; CONNACK has Session Present 0."""
        if not states:
            return
        now_ms = int(self._hub.clock.wall() * 1000)
        subjects = [Subject(record.id, state.client_id, state.epoch, now_ms) for state in states]
        self._hub.journal.note([events.session_discarded(subject, reason="queue_lost") for subject in subjects])
        log.error("sessions ended because their queues are lost", tenant=record.name, sessions=len(states))
        for state in states:  # a damaged queue is not listed, but is in the store
            await self._retry(partial(self._queues.drop, state.queue_id))

    def _recover_session(self, broker: TenantBroker, state: SessionState, peers: Peers | None) -> None:
        control = restore(self._hub, broker, state)
        if peers is not None:
            holder = peers.holder_of(state)
            is_online = state.is_connected and holder != HERE
            control.place = Place(holder, state.epoch, is_online=is_online, since_ms=state.disconnected_at_ms)
            broker.allowance.session_moved(broker.plane.sessions[state.client_id])
            if holder != HERE:
                pack(broker.plane, [state.client_id])
                return  # that hub handles its deadlines and its Will
        now_ms = int(self._hub.clock.wall() * 1000)
        disconnected_at_ms = state.disconnected_at_ms or now_ms
        if state.is_connected:
            disconnected_at_ms = self._lost_at_ms(state, now_ms)
            subject = Subject(broker.tenant_id, state.client_id, state.epoch, disconnected_at_ms)
            self._hub.journal.note([events.session_disconnected(subject, reason="hub_lost")])
        session = broker.plane.sessions[state.client_id]
        self._hub.sessions.adopt(broker, session, control, max(now_ms - disconnected_at_ms, 0) / 1000)

    def _lost_at_ms(self, state: SessionState, now_ms: int) -> int:
        """Return when its connection was lost with its hub: at the hub's last heartbeat, but not before its CONNECT, nor after now."""
        died_ms = now_ms if self._last_heartbeat_ms is None else self._last_heartbeat_ms
        return min(max(died_ms, state.connected_at_ms or 0), now_ms)
