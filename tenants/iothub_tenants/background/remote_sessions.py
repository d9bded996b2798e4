"""Applies what other hubs on the same stores do to sessions to this hub's own view of them: routes, expiry, Wills, and which hub has which.

Knows no log and no thread: it is given events in the order of the log, this hub's among them. It reads and writes no queue.

Theory: every hub knows every persistent session, or it could not route to it; one hub has it. The rules are those of the fold: an event below the
session's last epoch in the log is ignored, and the event with the highest epoch says which hub has the session. A session that this hub has
claimed stays with it although the log does not say so yet: its event is on the way to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from iothub.base import log as logging
from iothub.base.reasons import Reason
from iothub.engine.state import Connection, Place, Session
from iothub.records import events
from iothub.records.events import Event, EventType, Subject, number_of_hub
from iothub.records.state import SessionState, fold
from iothub_services.auth.port import Run
from iothub_services.sessions.packing import pack, pack_woken
from iothub_services.sessions.port import ENDED, HERE, SessionControl, Will
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.background.restoring import restore, shared, subscription_of, will_of
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub

log = logging.get(__name__)

_ENDS = frozenset((EventType.SESSION_EXPIRED, EventType.SESSION_DISCARDED))
_TAKEOVER_REASONS = frozenset(
    ("clean_start", "ended", "queue_lost", "not_opened")
)  # a session ended for one of these because of another CONNECT

SLICE = 1_000  # sessions handled before the reactor runs other work
CLOCKS_MS = (
    5_000  # by which a Will may be too early where clocks of hubs differ, and too late where the log is heard late
)
_MOST_ENDS = 10_000  # remembered ends: a slow hub may log the creation of a session that another one has replaced and ended since

Change = Callable[["RemoteSessions", TenantBroker, Session, Event], None]


class RemoteSessions:
    """On the reactor thread. `me`: returns the name that this hub writes on its events; `number`: its node number.

    `on_connected`: called with each session whose client another hub has from now on.
    """

    def __init__(
        self,
        hub: Hub,
        registry: Registry,
        run: Run,
        me: Callable[[], str],
        number: int,
        on_connected: Callable[[Session], None] = lambda _session: None,
    ) -> None:
        self._hub = hub
        self._registry = registry
        self._run = run
        self._me = me
        self._number = number
        self._on_connected = on_connected
        self._ended_at: dict[tuple[int, str], int] = {}  # epochs, the oldest end first

    async def apply_events(self, page: list[Event]) -> None:
        """Apply a page of the log. Raises UnavailableError: nothing was applied, for a tenant could not be read."""
        await self._make_brokers(event.tenant_id for event in page if event.type is EventType.SESSION_CREATED)
        for event in page:
            if event.epoch:
                self._apply_event(event)
        self._pack(page)

    def _pack(self, page: list[Event]) -> None:
        """Pack the sessions that these events were about, and some of those that were woken for messages."""
        touched: dict[int, set[str]] = {}
        for event in page:
            touched.setdefault(event.tenant_id, set()).add(event.client_id)
        planes = {broker.tenant_id: broker.plane for broker in self._hub.brokers}
        for tenant_id in touched.keys() & planes.keys():
            pack(planes[tenant_id], touched[tenant_id])
        woken = [plane for plane in planes.values() if plane.sessions.woken]
        for plane in woken:
            pack_woken(plane, SLICE // len(woken) + 1)

    async def _make_brokers(self, tenant_ids: Iterable[int]) -> None:
        for tenant_id in {*tenant_ids}:
            if self._hub.brokers.present(tenant_id) is None:
                record = await self._run("accounts.tenant", self._registry.tenant_by_id, tenant_id)
                if record is not None:
                    await self._hub.brokers.broker(record)

    def _apply_event(self, event: Event) -> None:
        broker = self._hub.brokers.present(event.tenant_id)
        if broker is None:
            return  # the tenant was deleted, or has no session
        session = broker.plane.sessions.get(event.client_id)
        if event.hub == self._me():
            self._apply_own_event(broker, session, event)
        elif event.type is EventType.SESSION_CREATED:
            if event.epoch > self._ended_at.get((event.tenant_id, event.client_id), 0):
                self._created(broker, session, event)
        elif session is not None and session.is_persistent:
            place: Place | None = session.control.place
            if place is not None and event.epoch >= place.logged_epoch:
                place.logged_epoch = event.epoch
                self._apply_change(broker, session, event)

    def _apply_change(self, broker: TenantBroker, session: Session, event: Event) -> None:
        """Do what the fold does; the hub that wrote the event has the session, unless this hub has claimed it since."""
        change = _CHANGES.get(event.type)
        if event.type in _ENDS:
            self._ended(broker, session, event)
        elif change is not None:
            if event.epoch > session.epoch:
                self._hub.sessions.hand_over(broker, session, Reason.TAKEN_OVER)
                session.epoch = event.epoch
            change(self, broker, session, event)
            if event.epoch == session.epoch:
                self._assign(broker, session, event)
                broker.allowance.session_moved(session)
                if event.type is EventType.SESSION_CONNECTED and session.control.is_online_elsewhere:
                    self._on_connected(session)

    def _apply_own_event(self, broker: TenantBroker, session: Session | None, event: Event) -> None:
        """An event of this hub is in force here already; new is only its order among the events of others."""
        if event.type in _ENDS:
            self._note_end(event)
        place: Place | None = None if session is None else session.control.place
        if session is None or place is None or event.epoch < place.logged_epoch:
            return
        place.logged_epoch = ENDED if event.type in _ENDS else event.epoch
        if place.holder != HERE and event.type not in _ENDS and event.epoch >= session.epoch:
            self._hub.sessions.hold(broker, session, self._ago_s(place.since_ms))
            broker.allowance.session_moved(session)

    # --- events of others

    def _created(self, broker: TenantBroker, session: Session | None, event: Event) -> None:
        if session is not None:
            if session.is_persistent and event.epoch <= session.epoch:
                return  # known since the start, or older than the session that is here
            self._replace(broker, session)
        state = fold(None, event)
        if state is not None:
            control = restore(self._hub, broker, state)
            control.place = Place(self._holder_of(event), event.epoch)
            broker.allowance.session_moved(broker.plane.sessions[event.client_id])

    def _replace(self, broker: TenantBroker, session: Session) -> None:
        """The client has a new session at another hub."""
        is_here = session.is_persistent and not session.control.is_elsewhere
        self._hub.sessions.hand_over(broker, session, Reason.TAKEN_OVER)
        if is_here:
            self._hub.sessions.abandon_queue(session.queue_id)
        self._hub.sessions.forget(broker, session)

    def _resumed(self, broker: TenantBroker, session: Session, event: Event) -> None:
        del broker
        if event.epoch < session.epoch:
            return  # this hub has claimed it since
        facts: Mapping[str, Any] = event.facts
        control: SessionControl = session.control
        control.version = facts["protocol_version"]
        control.expiry_s = shared(facts["session_expiry_s"])
        control.device_id = facts.get("device_id", control.device_id)
        if control.place is not None:
            control.place.since_ms = 0  # its client is just connecting: not offline since the connection before this

    def _connected(self, broker: TenantBroker, session: Session, event: Event) -> None:
        if event.epoch < session.epoch:
            return
        self._resumed(broker, session, event)
        session.control.place.is_online = True

    def _disconnected(self, broker: TenantBroker, session: Session, event: Event) -> None:
        if event.epoch < session.epoch:
            return
        if session.connection is not None:
            self._assert_connected(broker, session, session.connection)
            return
        control: SessionControl = session.control
        expiry_s = event.facts.get("session_expiry_s")
        if isinstance(expiry_s, int):
            control.expiry_s = shared(expiry_s)
        if control.place is not None:
            control.place.is_online = False
            control.place.since_ms = self._lost_at_ms(event)

    def _taken_over(self, broker: TenantBroker, session: Session, event: Event) -> None:
        """A CONNECT at another hub is about to claim it."""
        if event.epoch >= session.epoch:
            self._hub.sessions.hand_over(broker, session, Reason.TAKEN_OVER)
            self._disconnected(broker, session, event)

    def _assign(self, broker: TenantBroker, session: Session, event: Event) -> None:
        holder = self._holder_of(event)
        if holder == HERE:  # written before this hub's start, or by a program without a node number
            self._hub.sessions.hold(broker, session, self._ago_s(session.control.place.since_ms))
        else:
            self._hub.sessions.leave_to(session, holder)

    def _assert_connected(self, broker: TenantBroker, session: Session, connection: Connection) -> None:
        """Log that the session is connected: another hub has declared this one gone, but it lives, and so does the connection."""
        subject = Subject(broker.tenant_id, session.client_id, session.epoch, int(self._hub.clock.wall() * 1000))
        connected = events.session_connected(
            subject,
            device=session.device,
            protocol_version=connection.version,
            session_expiry_s=session.control.expiry_s,
            peer=connection.peer,
            keep_alive_s=int(connection.keep_alive_s),
        )
        self._hub.sessions.note([connected])

    def _ended(self, broker: TenantBroker, session: Session, event: Event) -> None:
        self._note_end(event)
        reason = Reason.TAKEN_OVER if event.facts.get("reason") in _TAKEOVER_REASONS else Reason.SESSION_DISCARDED
        self._hub.sessions.hand_over(broker, session, reason)
        self._hub.sessions.forget(broker, session)

    def _note_end(self, event: Event) -> None:
        """Remember the epoch, as the fold does."""
        key = (event.tenant_id, event.client_id)
        self._ended_at.pop(key, None)
        self._ended_at[key] = event.epoch
        if len(self._ended_at) > _MOST_ENDS:
            del self._ended_at[next(iter(self._ended_at))]

    def _subscribed(self, broker: TenantBroker, session: Session, event: Event) -> None:
        state = fold(_blank(session), event)
        for place, options in () if state is None else state.subscriptions.items():
            subscription = subscription_of(session, place, options)
            replaced = self._hub.plane.subscribe(session, subscription)
            broker.allowance.settle_subscription(subscription, is_reserved=False, was_there=replaced is not None)

    def _unsubscribed(self, broker: TenantBroker, session: Session, event: Event) -> None:
        group, topic_filter = event.facts["group"], str(event.facts["filter"]).encode()
        gone = self._hub.plane.unsubscribe(session, None if group is None else str(group).encode(), topic_filter)
        if gone is not None:
            broker.allowance.release_subscription(gone)

    def _will_changed(self, broker: TenantBroker, session: Session, event: Event) -> None:
        del broker
        if event.epoch >= session.epoch:
            state = fold(_blank(session), event)
            will: Will | None = None if state is None else will_of(state)
            session.control.will = will

    # --- a hub is gone

    async def take_over(self, numbers: frozenset[int], lost_at_ms: int) -> int:
        """Take over the sessions of hubs that are gone, as a start does with those of the hub before it. Returns how many there are."""
        count = 0
        for broker in self._hub.brokers:
            sessions = broker.plane.sessions
            for number, client_id in enumerate(sessions, 1):
                if number % SLICE == 0:
                    await self._hub.breathe()
                packed = sessions.packed.get(client_id)
                if packed is not None and packed.holder not in numbers:
                    continue
                session = sessions.get(client_id)
                if session is None or session.is_discarded:
                    continue
                place: Place | None = session.control.place if session.is_persistent else None
                if place is not None and place.holder in numbers:
                    self._take_over_session(broker, session, place, lost_at_ms)
                    count += 1
        return count

    def _take_over_session(self, broker: TenantBroker, session: Session, place: Place, lost_at_ms: int) -> None:
        control: SessionControl = session.control
        was_online = place.is_online
        if was_online or not place.since_ms:
            place.since_ms = lost_at_ms
        self._hub.sessions.hold(broker, session, self._ago_s(place.since_ms))
        broker.allowance.session_moved(session)
        if (
            was_online or control.expires_at or control.will is not None
        ):  # else there is no deadline that two hubs could both act on
            subject = Subject(broker.tenant_id, session.client_id, session.epoch, place.since_ms)
            self._hub.sessions.note([events.session_disconnected(subject, reason="hub_lost")])

    def _holder_of(self, event: Event) -> int:
        number = number_of_hub(event.hub)
        return HERE if number in (None, self._number) else int(number or 0)

    def _lost_at_ms(self, event: Event) -> int:
        """Return when a connection was lost, by this hub's clock.

        The hub that had it says so by its own clock, and this hub has heard of it at once. The end of a lost hub's connections comes later, with
        a time that is taken from heartbeats.
        """
        now_ms = int(self._hub.clock.wall() * 1000)
        earliest_ms = 0 if event.facts.get("reason") == "hub_lost" else now_ms - CLOCKS_MS
        return min(max(event.at_ms, earliest_ms), now_ms)

    def _ago_s(self, at_ms: int) -> float:
        return max(self._hub.clock.wall() - at_ms / 1000, 0.0) if at_ms else 0.0


def _blank(session: Session) -> SessionState:
    """Return an empty state, to fold one event by itself."""
    return SessionState(session.tenant.tenant_id, session.client_id, 0)


_CHANGES: Mapping[EventType, Change] = {
    EventType.SESSION_RESUMED: RemoteSessions._resumed,
    EventType.SESSION_CONNECTED: RemoteSessions._connected,
    EventType.SESSION_DISCONNECTED: RemoteSessions._disconnected,
    EventType.SESSION_TAKEN_OVER: RemoteSessions._taken_over,
    EventType.SESSION_SUBSCRIBED: RemoteSessions._subscribed,
    EventType.SESSION_UNSUBSCRIBED: RemoteSessions._unsubscribed,
    EventType.WILL_SET: RemoteSessions._will_changed,
    EventType.WILL_CLEARED: RemoteSessions._will_changed,
}
