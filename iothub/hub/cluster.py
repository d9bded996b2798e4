"""The hubs that share this one's stores: it follows what their sessions do, and holds publishers while it may not know enough.

Who lives is `iothub/hub/heartbeat.py`'s, what an event does to a session is `remote_sessions`'s, reading the log the follower's.

Theory (docs/adr/0010): every hub knows every subscription up to `known_at`. A SUBACK leaves `SETTLE_S` after its event was durable, and a hub routes
nothing when what it knows is older than `FRESH_S`, which is less: so what was published after a SUBACK is routed by it, at whichever hub, and no
hub has to answer another one. Nobody waits while a hub is alone; a hub that joins opens its listeners only when the others have seen it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, TimeoutError

from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.state import Connection, Session
from iothub.hub.cluster_parts import ClusterParts
from iothub.hub.drivers import followed_log
from iothub.hub.heartbeat import Heartbeat
from iothub_services.events.follower import ALONE_S, PERIOD_S, Follower
from iothub_services.sessions.port import HERE, Place
from iothub_tenants.background.membership import UNSEEN_S
from iothub_tenants.background.session_recovery import Peers

if TYPE_CHECKING:
    from iothub_services.events.port import Offsets

SETTLE_S = 0.5
FRESH_S = 0.4  # the rest is for what happens between the look at the log and the route that is taken by it
JOIN_S = UNSEEN_S + 2 * ALONE_S  # by then every other hub has seen this one, or holds back by itself
CATCH_UP_S = 10.0
LATE_S = 5.0  # publishers that wait for less are no news: a partition that changes its leader, a pause of this process
CLOSING_S = 1.0
_TURN_S = 0.02


class HubCluster:
    """Fulfils `iothub_services.sessions.port.Cluster`. On the reactor thread.

    Invariant: `turn.held_at` of the plane is finite from `follow` to the end.
    """

    def __init__(self, parts: ClusterParts) -> None:
        self._parts = parts
        self.members = parts.members
        self._follower: Follower | None = None
        self._heartbeat = Heartbeat(
            parts, catch_up=self.catch_up, is_following=lambda: self._is_following, on_look=self._judge
        )
        self._overtaken: set[Session] = set()
        self._is_over = False
        self._unread = ""  # what keeps the log from being followed

    # --- Cluster

    @property
    def is_alone(self) -> bool:
        """Nobody is there, and what those said who were is known here."""
        known_at = -math.inf if self._follower is None else self._follower.known_at
        return self.members.is_alone and known_at >= self._heartbeat.accompanied_at

    def place(self, epoch: int) -> Place | None:
        return Place(HERE, epoch)

    async def catch_up(self) -> None:
        if self._follower is None:
            raise UnavailableError("the session log is not followed yet")
        answer = self._follower.catch_up()
        try:
            await answer.addTimeout(CATCH_UP_S, self._parts.reactor)
        except TimeoutError:
            raise UnavailableError("the session log could not be followed in time") from None

    async def settle(self) -> None:
        if not self.is_alone:
            await self._parts.pause(SETTLE_S)

    # --- the hub's life

    async def join(self) -> Peers:
        """Become a hub among others. Raises ConfigError, ConflictError, UnavailableError."""
        return await self._heartbeat.join()

    async def open(self, after: Offsets) -> None:
        """Follow the log after these offsets; return when the listeners may be opened.

        By then every other hub knows of this one, and this one knows whatever they had acknowledged before.
        """
        self._follow(after)
        if self.members.living:
            await self._be_known()

    async def _be_known(self) -> None:
        """What a store holds up meanwhile begins anew."""
        heartbeat = self._heartbeat
        while not self._is_over:
            await self._parts.pause(max(self._unseen_s, 0.0))
            came_at = heartbeat.came_at
            await self._catch_up_at_last()
            if heartbeat.came_at == came_at and not heartbeat.is_silent:
                return

    @property
    def _unseen_s(self) -> float:
        """So long another hub may live that has not seen this one yet."""
        heartbeat = self._heartbeat
        return JOIN_S if heartbeat.is_silent else heartbeat.came_at + JOIN_S - self._parts.clock.monotonic()

    def _follow(self, after: Offsets) -> None:
        parts = self._parts
        self._follower = Follower(
            followed_log(parts.settings),
            after,
            parts.remote().apply_events,
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
        """End the links, while the sockets are still there to write what was said last."""
        if self._parts.links is not None:
            self._parts.links.close()
            await self._parts.pause(_TURN_S)

    async def leave(self, *, has_logged_all: bool) -> None:
        """As `Heartbeat.leave`."""
        await self._heartbeat.leave(has_logged_all=has_logged_all)

    # --- what is known of other hubs' sessions

    def _alarm(self, word: str, text: str) -> None:
        """While nobody else is there, nobody misses what the follower cannot read."""
        self._unread = text
        self._parts.store_alarms(word, "" if self.is_alone else text)

    def _knows(self, _at: float) -> None:
        self._judge()

    def _judge(self) -> None:
        """Say until when may be routed, how often the log is read, and how queue ids are taken."""
        follower, is_alone = self._follower, self.is_alone
        if follower is None:
            return
        self._parts.block_source.share(not is_alone)
        follower.set_period(ALONE_S if is_alone else PERIOD_S)
        known_until = follower.known_at + FRESH_S
        held_at = self.members.alone_until if is_alone else known_until
        self._parts.plane.hold_publishers_from(math.inf if self._is_over else held_at)

    @property
    def held_back(self) -> str:
        """Why nobody may publish here now; empty: everybody may, or could a moment ago."""
        now = self._parts.clock.monotonic()
        late_s = now - self._parts.plane.turn.held_at
        if late_s < LATE_S:
            return ""
        if math.isinf(late_s):  # it has not read anything yet: the start says so
            return self._unread
        if self.members.is_fresh:
            return (
                self._unread
                or f"the session log could not be read up to its end for {late_s:.0f} s, and publishers wait"
            )
        silence = self._heartbeat.unseen or "the accounts do not answer"
        return f"{silence}: for {late_s:.0f} s nobody knows whether other hubs are there, and publishers wait"

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
