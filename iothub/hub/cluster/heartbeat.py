"""This hub among the others, once a second: it joins, writes its heartbeat, reads theirs, and takes over from those that are gone.

Knows no session and reads no log: `iothub/hub/cluster/cluster.py` does. Who is gone, and until when this hub may route, is decided by
`iothub/peers/membership.py`; here its looks are taken and its changes are written.

Invariant: a hub whose start is held up by a store stops its heartbeat, and goes on later. Otherwise the others would take it for a running
hub, and nobody would take over the sessions of its earlier run: their Wills would not be sent.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from twisted.internet.defer import Deferred

from iothub.base import log
from iothub.base.errors import ConfigError, ConflictError, ExpelledError, IotHubError, UnavailableError
from iothub.config.workers import node_numbers
from iothub.hub.cluster.cluster_parts import ClusterParts
from iothub.hub.cluster.require_links import require_links
from iothub.hub.stores.choices import queue_drivers
from iothub.peers.membership import GONE_S, JOINING, Change, Look, MemberRow, Membership
from iothub.peers.ports import PeerId
from iothub.records.state import SessionState
from iothub_tenants.accounts.hubs import NOBODY, HubRow, View
from iothub_tenants.background.membership import HEARTBEAT_S, Standing
from iothub_tenants.background.session_recovery import Peers

_TURN_S = 0.02
_UP_S = 0.1  # between looks of a hub that waits to be up, or evicts another one
_EVICTION_LOOKS = 30  # others may change who there is meanwhile, or an answer may be lost


class Heartbeat:
    """On the reactor thread. Invariant: a hub that is gone is taken over from once its last events are known."""

    def __init__(
        self,
        parts: ClusterParts,
        *,
        catch_up: Callable[[], Awaitable[None]],
        is_following: Callable[[], bool],
        on_look: Callable[[], None],
    ) -> None:
        """`catch_up`, `is_following`: of the log. `on_look`: called after each look at the others, also one that failed, and as links tick."""
        self._parts = parts
        self._log = log.get(__name__)
        self.members = parts.members
        self._membership: Membership | None = None  # since this hub has joined
        self._catch_up = catch_up
        self._is_following = is_following
        self._on_look = on_look
        self._orphaned: dict[
            frozenset[int], float
        ] = {}  # whose sessions are to be taken, and since when they were silent
        self._is_taking_over = False
        self.came_at = 0.0  # when this hub joined, or was heard of again
        self.is_silent = False
        self._met: set[int] = set()  # others that were there at some time since
        self.accompanied_at = -math.inf  # somebody else was there until then, and may have said more than is known
        self._is_stopping = False
        self._has_left = False
        self._is_looking = False
        self._is_hurried = False
        self.unseen = ""  # what keeps the other hubs from being looked at

    async def join(self) -> Peers:
        """Become a hub among others. Raises ConfigError, ConflictError, UnavailableError."""
        parts = self._parts
        links = parts.links
        await self.members.join(parts.data_dir.read_member(), parts.pause, "" if links is None else links.open())
        await require_links(self.members, has_links=links is not None, pause=parts.pause, beside=self._beside())
        await self._require_shared_queues()
        await parts.run("housekeeping.member", parts.data_dir.write_member, self.members.incarnation)
        me = PeerId(self.members.number, self.members.incarnation)
        of_links = None if links is None else links.begin(me.incarnation, self._links_ticked, self._told_gone)
        self._membership = Membership(me, of_links, parts.boot_clock)
        self._take_look(self._membership, self.members.view, parts.boot_clock.boottime())
        self.came_at = parts.clock.monotonic()
        if self.members.living:
            self.accompanied_at = self.came_at
        parts.reactor.callLater(HEARTBEAT_S, self._beat)
        return Peers(self.members.number, self.members.living, self._look_again, lambda: frozenset(self._met))

    def _beside(self) -> range | None:
        settings, data_dir = self._parts.settings, self._parts.data_dir
        return node_numbers(settings, data_dir) if data_dir.worker and settings.events.driver == "sqlite" else None

    async def _require_shared_queues(self) -> None:
        """Raises ConfigError: a hub that is no worker of this data directory uses the same stores, and cannot reach a file here."""
        settings, data_dir = self._parts.settings, self._parts.data_dir
        elsewhere = self.members.living.difference(node_numbers(settings, data_dir))
        if elsewhere and "sqlite" in queue_drivers(settings, data_dir):
            await self.members.deregister()
            raise ConfigError(
                "another hub uses the same stores, and queues here are in a file that it cannot reach: choose hbase or redis "
                f"as queues.driver and in every queues.choices; delete {data_dir.queues.name} after its sessions have ended"
            )

    async def _look_again(self, states: list[SessionState]) -> list[SessionState]:
        keys = [state.key for state in states]
        return await self._parts.run("housekeeping.states", self._parts.states.states_of, keys)

    def note_others(self) -> None:
        """Another hub is there, or was until now."""
        self.accompanied_at = self._parts.clock.monotonic()

    async def be_up(self) -> None:
        """Return when this hub may serve clients: it is linked to every hub that does, and that is written."""
        membership = self._membership
        if membership is None:
            raise AssertionError("this hub has not joined")
        membership.become_ready()
        while not (membership.is_up or membership.gone or self._is_stopping):
            await self._look()
            if not membership.is_up:
                await self._parts.pause(_UP_S)
        self.look_soon()  # so that the others hear that this hub counts them and itself

    def look_soon(self) -> None:
        """Another hub has said how it sees who is there: its look was later than this hub's, perhaps."""
        self._is_hurried = True
        if not self._is_looking:
            self._look_at_once()

    def _look_at_once(self) -> None:
        if self._is_hurried and not self._has_left:
            self._is_hurried = False
            Deferred.fromCoroutine(self._look())

    async def evict(self, row: HubRow) -> None:
        """Declare a hub gone because an administrator says so, or note that one that is gone is known to be.

        Raises:
            ConflictError: nobody else serves clients.
            UnavailableError: it could not be written.
        """
        peer, membership = PeerId(row.number, row.incarnation), self._membership
        if membership is None or self._is_stopping:
            raise UnavailableError("the hub is starting or stopping")
        if not row.is_gone and not membership.is_up and not membership.members() - {peer}:
            raise ConflictError(
                f"hub {row.name} ({row.number}) is the last one that serves clients; nothing was changed"
            )
        membership.evict(peer)
        try:
            await self._until_gone(membership, peer)
        finally:
            membership.spare(peer)
        await self.members.acknowledge_gone(peer)
        await self._look()

    async def _until_gone(self, membership: Membership, peer: PeerId) -> None:
        for _ in range(_EVICTION_LOOKS):
            await self._look()
            if membership.is_gone(peer):
                return
            await self._parts.pause(_UP_S)
        raise UnavailableError(self.unseen or "who there is changes all the time; try again")

    def stop(self) -> None:
        """Take over from nobody any more; the heartbeat goes on until `leave`."""
        self._is_stopping = True

    async def leave(self, *, has_logged_all: bool) -> None:
        """Fall silent; deregister as well if everything that this hub had to say is in the log, else the others wait for it."""
        self._has_left = True
        if not has_logged_all:
            return
        while self._is_looking:
            await self._parts.pause(_TURN_S)
        try:
            await self.members.deregister()
        except IotHubError as error:
            self._log.warning("could not deregister; peers will notice by heartbeat timeout", cause=str(error))

    # --- until when this hub may route

    def routes_until(self) -> float:
        """Return until when publishers may be read, as far as is known now; monotonic."""
        if self._membership is None:
            return -math.inf
        clock, boot_clock = self._parts.clock, self._parts.boot_clock
        return clock.monotonic() + self._membership.routes_until() - boot_clock.boottime()

    @property
    def may_acknowledge(self) -> Callable[[], bool]:
        """What tells whether what was routed may be acknowledged now: asked after the last read of a batch, so it reads the clock."""
        return self._may_once_joined if self._membership is None else self._membership.may_route

    def _may_once_joined(self) -> bool:
        return self._membership is not None and self._membership.may_route()

    @property
    def state(self) -> str:
        """As this hub's row has it."""
        return "up" if self._membership is not None and self._membership.is_up else JOINING

    def _links_ticked(self) -> float:
        """Return when something is due here, if no link changes."""
        membership = self._membership
        if membership is None:
            return math.inf
        membership.pass_time()
        self._end_if_gone(membership)
        self._on_look()
        return membership.due()

    def _told_gone(self) -> None:
        if self._membership is not None:
            self._membership.told_gone()

    def _end_if_gone(self, membership: Membership) -> bool:
        """Begin again as a new incarnation: the others go on without this one, or none of them can be reached."""
        if membership.gone and not self._is_stopping:
            self._is_stopping = True
            self._on_look()  # nothing is routed or acknowledged from here on
            self._parts.on_replaced(
                ExpelledError(f"the other hubs go on without this one ({membership.gone}): it begins again")
            )
        return bool(membership.gone)

    # --- every second

    def _beat(self) -> None:
        if not self._has_left:  # until its last events are in the log it is not gone
            again = self._parts.reactor.callLater
            Deferred.fromCoroutine(self._look()).addBoth(lambda _: again(HEARTBEAT_S, self._beat))

    async def _look(self) -> None:
        if self._is_looking or self._membership is None:
            return
        self._is_looking = True
        try:
            had_others = bool(self.members.living)
            change = await self._look_around(self._membership)
            self._met |= self.members.living
            if had_others or self.members.living:
                self.note_others()
            if self.members.is_replaced and not self._is_stopping:
                self._parts.on_replaced(
                    ConflictError(
                        f"another hub took over node.number {self.members.number}: this one sent no heartbeat for too long"
                    )
                )
                return
            if self._end_if_gone(self._membership):
                return
            if change is not None and not (change.gone is None and self._is_kept_from_serving()):
                await self._write(self._membership, change)
            await self._ask_the_time()
            self._on_look()
            if self._is_following():
                now = self._parts.clock.wall()
                self._orphaned |= {gone: now - silent_s for gone, silent_s in (await self.members.take_over()).items()}
                if self._orphaned and not self._is_taking_over:
                    self._is_taking_over = True
                    Deferred.fromCoroutine(self._take_over())  # the heartbeat does not wait for the log
            self.unseen = ""
        except IotHubError as error:
            self._not_seen(str(error))
        except Exception as error:  # the service loop's edge: a defect with one look must not end the heartbeat
            self._log.error("defect in reading the other hubs' heartbeats", exc_info=error)
        finally:
            self._is_looking = False
            self._look_at_once()

    def _is_kept_from_serving(self) -> bool:
        """Tell whether a store holds up the start, or the clock is not that of the hubs that serve by this look."""
        links = self._parts.links
        return self.is_silent or (links is not None and links.is_clock_wrong())

    async def _ask_the_time(self) -> None:
        """Where nobody serves, and the clocks of the hubs that start differ, that of the accounts' server decides."""
        links, clock = self._parts.links, self._parts.boot_clock
        if links is not None and links.needs_third_clock:
            asked_at = clock.boottime()
            wall_s = await self.members.server_clock()
            if wall_s is not None:
                links.note_third_clock(wall_s, asked_at)

    def _not_seen(self, why: str) -> None:
        """Say it once: a hub that starts looks ten times a second."""
        is_news, self.unseen = why != self.unseen, why
        self._on_look()
        if is_news:
            self._log.warning("could not read the other hubs' heartbeats, will retry", cause=why)

    async def _look_around(self, membership: Membership) -> Change | None:
        """While a start waits for a store, this hub sends no heartbeat, and others take over from it."""
        is_held_up = self._parts.waiting.is_held_up
        self.is_silent |= is_held_up
        began = self._parts.boot_clock.boottime()
        view = await self.members.refresh(links=membership.links_up(), is_silent=is_held_up)
        if self.is_silent and not is_held_up:
            self.is_silent, self.came_at = False, self._parts.clock.monotonic()
        return self._take_look(membership, view, began)

    def _take_look(self, membership: Membership, view: View, began: float) -> Change | None:
        change = membership.take_look(Look(view.version, [_member_row(row) for row in view.rows], began))
        standing = {row.number: _standing(membership, row) for row in view.rows if row.number != self.members.number}
        self.members.note_standing(standing)
        if self._parts.links is not None:
            self._parts.links.members(self.members.present_rows(), serves=membership.is_up)
            self._parts.links.judge_gone([row for row, _ in self.members.rows()])
        return change

    async def _write(self, membership: Membership, change: Change) -> None:
        if change.gone is None:
            is_done = await self.members.set_up(change.version)
        else:
            is_done = await self.members.declare_gone(change.gone, change.why, change.version)
            if is_done:
                self._log.warning("declared a hub gone", number=change.gone.node, cause=change.why)
        membership.written(change, is_done=is_done)

    async def _take_over(self) -> None:
        try:
            for numbers, last_seen in list(self._orphaned.items()):
                await self._catch_up()
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


def _member_row(row: HubRow) -> MemberRow:
    is_settled = row.is_over or row.successor != NOBODY
    return MemberRow(PeerId(row.number, row.incarnation), row.state, row.heartbeat, row.links, row.is_gone, is_settled)


def _standing(membership: Membership, row: HubRow) -> Standing:
    peer = PeerId(row.number, row.incarnation)
    still_s = membership.still_s(peer)
    is_silent = row.state == JOINING and not row.is_gone and still_s >= GONE_S
    return Standing(still_s, is_over=not membership.is_present(peer), is_silent=is_silent)
