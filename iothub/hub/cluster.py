"""The hubs that share this one's stores: it joins them, follows what their sessions do, and takes over from those that are gone.

Who lives is `membership`'s, what an event does to a session is `remote_sessions`'s, reading the log the follower's.

Theory (docs/adr/0010): every hub knows every subscription up to `known_at`. A SUBACK leaves `SETTLE_S` after its event was durable, and a hub routes
nothing when what it knows is older than `FRESH_S`, which is less: so what was published after a SUBACK is routed by it, at whichever hub, and no
hub has to answer another one. Nobody waits while a hub is alone; a hub that joins opens its listeners only when the others have seen it.

Invariant: a hub whose start is held up by a store stops its heartbeat, and joins again later. Otherwise the others would take it for a running
hub, and nobody would take over the sessions of its earlier run: their Wills would not be sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, TimeoutError

from iothub.base import log
from iothub.base.clock import Clock
from iothub.base.errors import ConfigError, ConflictError, IotHubError, UnavailableError
from iothub.base.reasons import Reason
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.engine.plane import Plane
from iothub.engine.state import Connection, Session
from iothub.hub.drivers import followed_log, queue_drivers
from iothub.hub.peer_links import PeerLinks
from iothub.hub.wait_for_servers import Pause, Waiting
from iothub.records.state import SessionState
from iothub_services.auth.port import Run
from iothub_services.damaged import OnDamage
from iothub_services.events.follower import ALONE_S, PERIOD_S, Follower
from iothub_services.sessions.port import HERE, Place
from iothub_services.state.service import StateService
from iothub_tenants.accounts.generator import BlockSource
from iothub_tenants.background.membership import HEARTBEAT_S, UNSEEN_S, Members
from iothub_tenants.background.remote_sessions import RemoteSessions
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


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """What a hub among others works with.

    Attributes:
        remote: What applies other hubs' events; it works above the sessions, which are made above the cluster.
        links: None: `cluster.listen` is not set.
        on_replaced: Called once another hub replaces this one.
    """

    settings: Config
    data_dir: DataDir
    reactor: Any
    clock: Clock
    run: Run
    pause: Pause
    members: Members
    states: StateService
    plane: Plane
    block_source: BlockSource
    waiting: Waiting
    store_alarms: Callable[[str, str], None]
    damaged: OnDamage
    remote: Callable[[], RemoteSessions]
    links: PeerLinks | None
    on_replaced: Callable[[ConflictError], None]


class HubCluster:
    """Fulfils `iothub_services.sessions.port.Cluster`. On the reactor thread.

    Invariants: `turn.held_at` of the plane is finite from `follow` to the end; a hub that is gone is taken over from once its last events are known.
    """

    def __init__(self, parts: ClusterParts) -> None:
        self._parts = parts
        self._log = log.get(__name__)
        self.members = parts.members
        self._follower: Follower | None = None
        self._orphaned: dict[
            frozenset[int], float
        ] = {}  # whose sessions are to be taken, and since when they were silent
        self._is_taking_over = False
        self._overtaken: set[Session] = set()
        self._came_at = 0.0  # when this hub joined, or was heard of again
        self._is_silent = False
        self._met: set[int] = set()  # others that were there at some time since
        self._accompanied_at = -math.inf  # somebody else was there until then, and may have said more than is known
        self._is_over = False
        self._has_left = False
        self._is_looking = False
        self._unread = ""  # what keeps the log from being followed
        self._unseen = ""  # what keeps the other hubs from being looked at

    # --- Cluster

    @property
    def is_alone(self) -> bool:
        """Nobody is there, and what those said who were is known here."""
        known_at = -math.inf if self._follower is None else self._follower.known_at
        return self.members.is_alone and known_at >= self._accompanied_at

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
        parts = self._parts
        links = parts.links
        await self.members.join(parts.data_dir.read_member(), parts.pause, "" if links is None else links.open())
        await self._require_shared_queues()
        await parts.run("housekeeping.member", parts.data_dir.write_member, self.members.incarnation)
        if links is not None:
            links.begin(self.members.incarnation)
            links.members(self.members.living_rows())
        self._came_at = parts.clock.monotonic()
        if self.members.living:
            self._accompanied_at = self._came_at
        parts.reactor.callLater(HEARTBEAT_S, self._beat)
        return Peers(self.members.number, self.members.living, self._look_again, lambda: frozenset(self._met))

    async def _require_shared_queues(self) -> None:
        if self.members.living and "sqlite" in queue_drivers(self._parts.settings, self._parts.data_dir):
            await self.members.deregister()
            raise ConfigError(
                "another hub uses the same stores, and queues here are in a file that it cannot reach: choose hbase or redis "
                f"as queues.driver and in every queues.choices; delete {self._parts.data_dir.queues.name} after its sessions have ended"
            )

    async def _look_again(self, states: list[SessionState]) -> list[SessionState]:
        keys = [state.key for state in states]
        return await self._parts.run("housekeeping.states", self._parts.states.states_of, keys)

    async def open(self, after: Offsets) -> None:
        """Follow the log after these offsets; return when the listeners may be opened.

        By then every other hub knows of this one, and this one knows whatever they had acknowledged before.
        """
        self._follow(after)
        if self.members.living:
            await self._be_known()

    async def _be_known(self) -> None:
        """What a store holds up meanwhile begins anew."""
        while not self._is_over:
            await self._parts.pause(max(self._unseen_s, 0.0))
            came_at = self._came_at
            await self._catch_up_at_last()
            if self._came_at == came_at and not self._is_silent:
                return

    @property
    def _unseen_s(self) -> float:
        """So long another hub may live that has not seen this one yet."""
        return JOIN_S if self._is_silent else self._came_at + JOIN_S - self._parts.clock.monotonic()

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

    async def _catch_up_at_last(self) -> None:
        if not self._is_over:
            await self._parts.waiting.until_loaded("the session log", self.catch_up)

    async def stop_following(self) -> None:
        """Nobody is here any more who must know what others do."""
        self._is_over = True
        self._judge()
        if self._follower is not None:
            await self._parts.run("closing.follower", self._follower.close, CLOSING_S)

    async def close_links(self) -> None:
        """End the links, while the sockets are still there to write what was said last."""
        if self._parts.links is not None:
            self._parts.links.close()
            await self._parts.pause(_TURN_S)

    async def leave(self, *, has_logged_all: bool) -> None:
        """Fall silent; deregister as well if everything that this hub had to say is in the log, else the others wait for it."""
        self._has_left = True
        if not has_logged_all:
            return
        while self._is_looking:
            await self._parts.pause(_TURN_S)  # a heartbeat on its way would take the end back
        try:
            await self.members.deregister()
        except IotHubError as error:
            self._log.warning("could not deregister; peers will notice by heartbeat timeout", cause=str(error))

    # --- every second

    def _beat(self) -> None:
        if not self._has_left:  # until its last events are in the log it is not gone
            again = self._parts.reactor.callLater
            Deferred.fromCoroutine(self._look()).addBoth(lambda _: again(HEARTBEAT_S, self._beat))

    async def _look(self) -> None:
        self._is_looking = True
        try:
            had_others = bool(self.members.living)
            await self._look_around()
            if self._parts.links is not None:
                self._parts.links.members(self.members.living_rows())
            self._met |= self.members.living
            if had_others or self.members.living:
                self._accompanied_at = self._parts.clock.monotonic()
            if self.members.is_replaced and not self._is_over:
                self._parts.on_replaced(
                    ConflictError(
                        f"another hub took over node.number {self.members.number}: this one sent no heartbeat for too long"
                    )
                )
                return
            self._judge()
            if self._follower is not None and not self._is_over:
                now = self._parts.clock.wall()
                self._orphaned |= {gone: now - silent_s for gone, silent_s in (await self.members.take_over()).items()}
                if self._orphaned and not self._is_taking_over:
                    self._is_taking_over = True
                    Deferred.fromCoroutine(self._take_over())  # the heartbeat does not wait for the log
            self._unseen = ""
        except IotHubError as error:
            self._unseen = str(error)
            self._log.warning("could not read the other hubs' heartbeats, will retry", cause=str(error))
        except Exception as error:  # the service loop's edge: a defect with one look must not end the heartbeat
            self._log.error("defect in reading the other hubs' heartbeats", exc_info=error)
        finally:
            self._is_looking = False

    async def _look_around(self) -> None:
        """While a start waits for a store, this hub sends no heartbeat, and others take over from it: it has to begin anew."""
        is_held_up = self._parts.waiting.is_held_up
        self._is_silent |= is_held_up
        await self.members.refresh(is_silent=is_held_up)
        if self._is_silent and not is_held_up:
            self._is_silent, self._came_at = False, self._parts.clock.monotonic()

    async def _take_over(self) -> None:
        try:
            for numbers, last_seen in list(self._orphaned.items()):
                await self.catch_up()
                gone = numbers - self.members.living  # not from one that has come back while the log could not be read
                if gone:
                    count = await self._parts.remote().take_over(gone, int(last_seen * 1000))
                    self._log.info("took over the sessions of hubs that are gone", numbers=sorted(gone), sessions=count)
                del self._orphaned[numbers]
        except IotHubError as error:
            self._log.warning("take-over of a lost hub's sessions failed, will retry", cause=str(error))
        except Exception as error:  # the service loop's edge, as in a look
            self._log.error("defect while taking over sessions", exc_info=error)
        finally:
            self._is_taking_over = False

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
        silence = self._unseen or "the accounts do not answer"
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
