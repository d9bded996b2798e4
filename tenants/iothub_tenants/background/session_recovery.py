"""A hub starts: every persistent session that the log knows gets its place back before the first client comes.

Knows no log and no fold: it is given the folded states. A session whose connection died with the hub is told so by an event, so that
its expiry and its Will begin.

Theory: a server may fail in the middle, for minutes. Each question to a store, and each change, is asked again by itself until it is answered
(`Patiently`), so that nothing is half loaded and nothing is loaded twice. What the servers said before may be old by then: other hubs may have
come, and what they have begun is not to be taken for what nobody has (!).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from iothub.base import log as logging
from iothub.base.gc_tuning import uncollected
from iothub.records import events
from iothub.records.events import Subject, number_of_hub
from iothub.records.state import SessionState
from iothub_services.auth.port import Run, TenantRecord
from iothub_services.awaited import AwaitedQueues
from iothub_services.sessions.port import HERE, Place
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.background.restoring import restore
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.queue_bounds import QueueBounds

log = logging.get(__name__)

T = TypeVar("T")


class Patiently(Protocol):
    """Does a piece of work that can be repeated, until its servers have answered."""

    def __call__(self, work: Callable[[], Awaitable[T]], /) -> Awaitable[T]: ...


def at_once(work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Do it once: no server is needed, or nobody is to wait."""
    return work()


def nobody() -> frozenset[int]:
    return frozenset()


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The hubs that share stores, as a start sees them: this one's node number, those of others that may live, and the log, asked again.

    `newcomers`: the numbers of all that were seen since.
    """

    number: int
    living: frozenset[int]
    look_again: Callable[[list[SessionState]], Awaitable[list[SessionState]]]  # those that have not ended by now
    newcomers: Callable[[], frozenset[int]] = nobody

    @property
    def has_company(self) -> bool:
        return bool(self.living or self.newcomers())

    def holder_of(self, state: SessionState) -> int:
        """Who has a session: its hub, if that may live; HERE: this hub, or one that is gone while nobody else is there."""
        number = number_of_hub(state.hub)
        if number in (None, self.number) or not (self.living or number in self.newcomers()):
            return HERE
        return int(number or 0)


class Awakening:
    """Loads sessions once, at start."""

    def __init__(
        self,
        hub: Hub,
        registry: Registry,
        queues: AwaitedQueues,
        bounds: QueueBounds,
        run: Run,
        *,
        last_beat: float | None = None,
        neighbours: Neighbours | None = None,
        patiently: Patiently = at_once,
    ) -> None:
        """`last_beat`: when the hub before this one was last seen alive, in Unix seconds. `neighbours`: None: no store is shared."""
        self._neighbours = neighbours
        self._patiently = patiently
        self._last_beat_ms = None if last_beat is None else int(last_beat * 1000)
        self._hub = hub
        self._registry = registry
        self._queues = queues
        self._bounds = bounds
        self._run = run

    async def load(self, states: Iterable[SessionState]) -> int:
        """Adopt all living sessions; drop the queues that belong to none. Returns how many sessions there are."""
        by_tenant: dict[int, list[SessionState]] = {}
        for state in states:
            by_tenant.setdefault(state.tenant_id, []).append(state)
        loaded = 0
        run = self._run
        for tenant_id in await self._patiently(partial(run, "accounts.names", self._registry.tenant_names)):
            find = partial(run, "accounts.tenant", self._registry.tenant_by_id, tenant_id)
            record = await self._patiently(find)
            if record is not None:
                loaded += await self._adopt_all(record, by_tenant.get(tenant_id, []))
        return loaded

    async def _adopt_all(self, record: TenantRecord, states: list[SessionState]) -> int:
        listed = await self._patiently(lambda: self._queues.list_queues(record.id))
        queues = {queue.queue_id for queue in listed}
        kept = [state for state in states if state.queue_id in queues]
        lost = [state for state in states if state.queue_id not in queues]
        neighbours = self._neighbours
        if lost and neighbours is not None and neighbours.has_company:  # they may have ended since they were read
            lost = await self._patiently(partial(neighbours.look_again, lost))
            kept += [state for state in lost if neighbours.holder_of(state) != HERE]  # its hub's to see to
            lost = [state for state in lost if neighbours.holder_of(state) == HERE]
        await self._end_lost(record, lost)
        if kept:
            broker = await self._patiently(lambda: self._hub.brokers.broker(record))
            with uncollected():
                for state in kept:
                    self._adopt(broker, state)
            # Limits may have changed while no hub ran.
            await self._patiently(lambda: self._bounds.apply_bounds(broker, listed))
        await self._drop(queues.difference(state.queue_id for state in kept))
        return len(kept)

    async def _drop(self, queue_ids: Iterable[int]) -> None:
        """Drop queues whose session ended, or never began: the hub died in between."""
        for queue_id in queue_ids:
            if self._neighbours is not None and self._neighbours.has_company:
                return  # a young queue may be of a session that another hub is just about to begin
            await self._patiently(partial(self._queues.drop, queue_id))

    async def _end_lost(self, record: TenantRecord, states: list[SessionState]) -> None:
        """Without its queue a session would have publishers acknowledged for what is stored nowhere: it ends; its client hears Session Present 0."""
        if not states:
            return
        now_ms = int(self._hub.clock.wall() * 1000)
        subjects = [Subject(record.id, state.client_id, state.epoch, now_ms) for state in states]
        self._hub.journal.note([events.session_discarded(subject, reason="queue_lost") for subject in subjects])
        log.error("sessions whose queues are lost have ended", tenant=record.name, sessions=len(states))
        for state in states:  # a damaged queue is not listed, but there
            await self._patiently(partial(self._queues.drop, state.queue_id))

    def _adopt(self, broker: TenantBroker, state: SessionState) -> None:
        control = restore(self._hub, broker, state)
        if self._neighbours is not None:
            holder = self._neighbours.holder_of(state)
            is_online = state.is_connected and holder != HERE
            control.place = Place(holder, state.epoch, is_online=is_online, since_ms=state.disconnected_at_ms)
            broker.allowance.session_moved(broker.plane.sessions[state.client_id])
            if holder != HERE:
                return  # its deadlines and its Will are its hub's
        now_ms = int(self._hub.clock.wall() * 1000)
        disconnected_at_ms = state.disconnected_at_ms or now_ms
        if state.is_connected:
            disconnected_at_ms = self._lost_at_ms(state, now_ms)
            subject = Subject(broker.tenant_id, state.client_id, state.epoch, disconnected_at_ms)
            self._hub.journal.note([events.session_disconnected(subject, reason="hub_lost")])
        session = broker.plane.sessions[state.client_id]
        self._hub.sessions.adopt(broker, session, control, max(now_ms - disconnected_at_ms, 0) / 1000)

    def _lost_at_ms(self, state: SessionState, now_ms: int) -> int:
        """When its connection died with its hub: at that one's last heartbeat, but not before it had come, nor after now."""
        died_ms = now_ms if self._last_beat_ms is None else self._last_beat_ms
        return min(max(died_ms, state.connected_at_ms or 0), now_ms)
