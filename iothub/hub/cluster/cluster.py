"""The hubs that share this one's stores: it follows what their sessions do, and holds publishers while the others may not wait for it.

Who lives is `iothub/hub/cluster/heartbeat.py`'s, what an event does to a session is `remote_sessions`'s, reading the log the follower's.

Theory (docs/adr/0030): every hub knows every subscription up to a place of the log. A SUBACK leaves when every hub that has the tenant open has said
over its link that it knows the log up to the subscription, or that it reads no publisher before it does. A hub that joins opens its listeners
when it is linked to the others. So a hub that is alone waits for nobody.

Invariant: a hub for which the others may not wait any more routes nothing: one that could neither read the heartbeats for a while nor heard of every
other hub over its link. Before it goes on, it reads the log up to its end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, TimeoutError

from iothub.base import log
from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.state import Connection, Place, Session
from iothub.hub.cluster.cluster_parts import ClusterParts
from iothub.hub.cluster.heartbeat import Heartbeat
from iothub.hub.cluster.peer_links import PeerLinks
from iothub.peers.known import OwnPlace
from iothub.records.events import Event
from iothub_services.events.follower import ALONE_S, PERIOD_S, Follower
from iothub_services.sessions.port import HERE
from iothub_tenants.accounts.hubs import HubRow
from iothub_tenants.background.session_recovery import Peers

if TYPE_CHECKING:
    from iothub_services.events.port import Offsets

CATCH_UP_S = 10.0
LATE_S = 5.0  # publishers that wait for less are no news: a partition that changes its leader, a pause of this process
CLOSING_S = 1.0
ACKNOWLEDGED_S = 2.0  # so long a hub that stops waits for the others to acknowledge what it has sent them
RETRY_S = 1.0
_LINKED_FIRST = "it serves clients when it is linked to every hub that does"
_TURN_S = 0.02


class HubCluster:
    """Fulfils `iothub_services.sessions.port.Cluster`. On the reactor thread.

    Invariant: `turn.held_at` of the plane is finite from `follow` to the end.
    """

    def __init__(self, parts: ClusterParts) -> None:
        self._parts = parts
        self._log = log.get(__name__)
        self.members = parts.members
        self._follower: Follower | None = None
        self._heartbeat = Heartbeat(
            parts, catch_up=self.catch_up, is_following=lambda: self._is_following, on_look=self._judge
        )
        self.log_place = OwnPlace(self._read_on, self._read_to_end)
        self._regained_at = (
            math.inf
        )  # since then the others wait for this hub again; infinity: they always did, or do not
        self._overtaken: set[Session] = set()
        self._uncounted: deque[Deferred[None]] = deque()  # settled but for a look whether the others count this hub
        self._is_over = False
        self._unread = ""  # what keeps the log from being followed

    # --- Cluster

    @property
    def is_alone(self) -> bool:
        """Nobody is there, linked or not, and what those said who were is known here."""
        known_at = -math.inf if self._follower is None else self._follower.known_at
        links = self._parts.links
        has_links = links is not None and bool(links.up())
        return self.members.is_alone and not has_links and known_at >= self._heartbeat.accompanied_at

    def place(self, epoch: int) -> Place | None:
        return Place(HERE, epoch)

    async def catch_up(self, ago_s: float = 0.0) -> None:
        if self._follower is None:
            raise UnavailableError("the session log is not followed yet")
        if ago_s and self._follower.known_at >= self._parts.clock.monotonic() - ago_s:
            return
        answer = self._follower.catch_up()
        try:
            await answer.addTimeout(CATCH_UP_S, self._parts.reactor)
        except TimeoutError:
            raise UnavailableError("the session log could not be followed in time") from None

    def settle(self, tenant_id: int, place: Offsets | None) -> Deferred[None] | None:
        places = self._parts.places()
        settled: Deferred[None] = Deferred()
        if places is not None:
            if place is None:
                return Deferred.fromCoroutine(self._settle_unplaced(tenant_id))
            if places.await_known(tenant_id, place, lambda: self._settle_once_counted(settled)):
                return settled
        self._settle_once_counted(settled)
        return None if settled.called else settled

    def _settle_once_counted(self, settled: Deferred[None]) -> None:
        """Fire once the others count this hub. Invariant: that is asked when the event is in the log and all that this hub knows of know it.

        The others go on without a hub that stood still for too long, and one that opens a tenant then does not ask it what its log says.
        """
        if self._uncounted or not self._heartbeat.may_acknowledge():
            self._uncounted.append(settled)
        else:
            settled.callback(None)

    async def _settle_unplaced(self, tenant_id: int) -> None:
        """The log could not say where an event is: it is somewhere before the log's end."""
        is_read: Deferred[None] = Deferred()
        self._read_to_end(lambda: is_read.callback(None))
        await is_read
        settled = self.settle(tenant_id, self.log_place.applied)
        if settled is not None:
            await settled

    def woken(self) -> None:
        """The machine was suspended until now: nothing is routed before it is known whether the others still count this hub."""
        self._judge()

    def peers_changed(self) -> None:
        """Another hub was linked, or is gone."""
        self._heartbeat.note_others()
        self._judge()

    # --- the hub's life

    async def join(self) -> Peers:
        """Become a hub among others; return when its clock is theirs. Raises ConfigError, ConflictError, UnavailableError."""
        peers = await self._heartbeat.join()
        await self._until_linked()  # sessions that are recovered now, and whatever they have waiting, have deadlines
        if self._is_over:
            raise UnavailableError("the hub stops")
        return peers

    async def open(self, after: Offsets) -> None:
        """Follow the log after these offsets; return when the listeners may be opened.

        By then this hub is linked to every other one, and knows whatever they had acknowledged before.
        """
        self._follow(after)
        if self.members.living:
            await self._be_linked()
        await self._heartbeat.be_up()

    async def _be_linked(self) -> None:
        """What a store holds up meanwhile begins anew."""
        heartbeat = self._heartbeat
        while not self._is_over:
            await self._until_linked()
            came_at = heartbeat.came_at
            await self._catch_up_at_last()
            if heartbeat.came_at == came_at and not heartbeat.is_silent:
                return

    async def _until_linked(self) -> None:
        """Return when there is a link to every hub that is waited for, and this machine's clock is right."""
        while not self._is_over and (self._heartbeat.is_silent or self._is_kept_out()):
            self._parts.waiting.note(self._kept_out_by())
            await self._parts.pause(_TURN_S)
        self._parts.waiting.note("")

    def _is_kept_out(self) -> bool:
        links = self._parts.links
        return links is not None and (links.unlinked() or links.is_clock_wrong())

    def _kept_out_by(self) -> str:
        """Name what this hub waits for among the others, as far as that is known."""
        links = self._parts.links
        if links is None:
            return ""
        missing = [
            f"{each.name} ({each.peer.node}): {links.trouble(each.peer.node) or 'no link yet'}"
            for each in links.status()
            if each.state != "up"
        ]
        return f"{_LINKED_FIRST}: {'; '.join(missing)}" if missing else links.clock_fault

    def _follow(self, after: Offsets) -> None:
        parts = self._parts
        self._note_applied(after)
        self._follower = Follower(
            parts.followed_log(),
            after,
            self._apply,
            parts.reactor.callFromThread,
            parts.clock,
            on_known=self._knows,
            on_alarm=self._alarm,
            on_damage=parts.damaged,
        )
        self._follower.start()
        self._judge()

    @property
    def _is_following(self) -> bool:
        return self._follower is not None and not self._is_over

    async def _catch_up_at_last(self) -> None:
        if not self._is_over:
            await self._parts.waiting.until_loaded("the session log", self.catch_up)

    async def stop_following(self) -> None:
        """Nobody is here any more who must know what others do."""
        self._is_over = True
        self._heartbeat.stop()
        self._judge()
        if self._follower is not None:
            await self._parts.run("closing.follower", self._follower.close, CLOSING_S)

    async def close_links(self) -> None:
        """End the links once all that was sent over them is acknowledged, while the sockets are still there to write what was said last.

        Invariant: that is before this hub leaves: the others go on without one that has left at once.
        """
        links = self._parts.links
        if links is None:
            return
        until = self._parts.clock.monotonic() + ACKNOWLEDGED_S
        while (waiting := _unacknowledged(links)) and self._parts.clock.monotonic() < until:
            await self._parts.pause(_TURN_S)
        if waiting:
            self._log.warning("stopped before other hubs acknowledged everything", bytes_by_peer=waiting)
        links.close()
        await self._parts.pause(_TURN_S)

    @property
    def state(self) -> str:
        """`joining` or `up`, as the others see this hub."""
        return self._heartbeat.state

    def look_soon(self) -> None:
        """As `Heartbeat.look_soon`."""
        self._heartbeat.look_soon()

    async def evict(self, row: HubRow) -> None:
        """As `Heartbeat.evict`."""
        await self._heartbeat.evict(row)

    async def leave(self, *, has_logged_all: bool) -> None:
        """As `Heartbeat.leave`."""
        await self._heartbeat.leave(has_logged_all=has_logged_all)

    # --- what is known of other hubs' sessions

    def _alarm(self, word: str, text: str) -> None:
        """While nobody else is there, nobody misses what the follower cannot read."""
        self._unread = text
        self._parts.store_alarms(word, "" if self.is_alone else text)

    def _read_on(self) -> None:
        if self._follower is not None:
            self._follower.hurry()

    def _read_to_end(self, on_done: Callable[[], None]) -> None:
        Deferred.fromCoroutine(self._read_at_last(on_done))

    async def _read_at_last(self, on_done: Callable[[], None]) -> None:
        """A log that cannot be read is asked again."""
        while not self._is_over:
            try:
                await self.catch_up()
            except UnavailableError:
                await self._parts.pause(RETRY_S)
            else:
                on_done()
                return

    async def _apply(self, page: list[Event], place: Offsets) -> None:
        """Invariant: nothing is routed between the last event of a page and what the others are told about it."""
        await self._parts.remote().apply_events(page)
        self._note_applied(place)

    def _note_applied(self, place: Offsets) -> None:
        places = self._parts.places()
        if places is not None:
            places.note_applied(place)

    def _knows(self, _at: float) -> None:
        self._judge()

    def _judge(self) -> None:
        """Say until when may be routed, how often the log is read, and how queue ids are taken."""
        follower, is_alone = self._follower, self.is_alone
        if follower is None:
            return
        self._parts.block_source.share(not is_alone)
        follower.set_period(ALONE_S if is_alone else PERIOD_S)
        plane, may_acknowledge = self._parts.plane, self._heartbeat.may_acknowledge
        if self._is_over:
            plane.hold_from(math.inf)
        else:
            self._judge_routing(follower.known_at)
        is_unguarded = self._is_over or (is_alone and may_acknowledge())
        plane.answers.guard(None if is_unguarded else may_acknowledge)
        while self._uncounted and may_acknowledge():
            self._uncounted.popleft().callback(None)

    def _judge_routing(self, known_at: float) -> None:
        plane, now, awaited_until = self._parts.plane, self._parts.clock.monotonic(), self._heartbeat.routes_until()
        if awaited_until <= now:
            self._regained_at = math.inf
            plane.hold_from(min(plane.turn.held_at, awaited_until))
            return
        if plane.turn.held_at <= now:
            if math.isinf(self._regained_at):
                self._regained_at = now
                self._read_on()
            if known_at < self._regained_at:
                return
        self._regained_at = math.inf
        plane.hold_from(awaited_until)

    @property
    def held_back(self) -> str:
        """Why nobody may publish here now; empty: everybody may, or could a moment ago."""
        now = self._parts.clock.monotonic()
        late_s = now - self._parts.plane.turn.held_at
        if late_s < LATE_S:
            return ""
        if not math.isinf(self._regained_at):
            return (
                self._unread
                or f"the session log could not be read up to its end for {late_s:.0f} s; publishers and durable queues wait"
            )
        silence = self._heartbeat.unseen or "the accounts do not answer"
        return f"{silence}: for {late_s:.0f} s nobody knows whether other hubs are there; publishers and durable queues wait"

    # --- a claim was overtaken

    def on_stale(self, session: Session) -> None:
        """The store refuses this session's epoch: another hub has claimed it. The log says more, unless that hub died in between."""
        if session.connection is not None and session not in self._overtaken:
            self._overtaken.add(session)
            Deferred.fromCoroutine(self._give_way(session, session.epoch, session.connection))

    async def _give_way(self, session: Session, epoch: int, connection: Connection) -> None:
        try:
            await self.catch_up()
        except UnavailableError:
            return  # it is refused again, and looked at again
        finally:
            self._overtaken.discard(session)
        if session.connection is connection and session.epoch == epoch:
            self._parts.plane.close(connection, Reason.TAKEN_OVER)


def _unacknowledged(links: PeerLinks) -> dict[int, int]:
    """Return for how many bytes each linked hub has not said that it has applied them."""
    statuses = (status for status in links.status() if status.state == "up")
    return {status.peer.node: status.unacknowledged_bytes for status in statuses if status.unacknowledged_bytes}
