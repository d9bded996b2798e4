"""This hub among the others, once a second: it joins, writes its heartbeat, reads theirs, and takes over from those that are gone.

Knows no session and reads no log: `iothub/hub/cluster.py` does. What a row means is `membership`'s.

Invariant: a hub whose start is held up by a store stops its heartbeat, and joins again later. Otherwise the others would take it for a running
hub, and nobody would take over the sessions of its earlier run: their Wills would not be sent.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from twisted.internet.defer import Deferred

from iothub.base import log
from iothub.base.errors import ConfigError, ConflictError, IotHubError
from iothub.hub.cluster_parts import ClusterParts
from iothub.hub.drivers import queue_drivers
from iothub.hub.require_links import require_links
from iothub.records.state import SessionState
from iothub_tenants.background.membership import HEARTBEAT_S
from iothub_tenants.background.session_recovery import Peers

_TURN_S = 0.02


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
        """`catch_up`, `is_following`: of the log. `on_look`: called after each look at the others, also one that failed."""
        self._parts = parts
        self._log = log.get(__name__)
        self.members = parts.members
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
        self.unseen = ""  # what keeps the other hubs from being looked at

    async def join(self) -> Peers:
        """Become a hub among others. Raises ConfigError, ConflictError, UnavailableError."""
        parts = self._parts
        links = parts.links
        await self.members.join(parts.data_dir.read_member(), parts.pause, "" if links is None else links.open())
        await require_links(self.members, has_links=links is not None, pause=parts.pause)
        await self._require_shared_queues()
        await parts.run("housekeeping.member", parts.data_dir.write_member, self.members.incarnation)
        if links is not None:
            links.begin(self.members.incarnation)
            links.members(self.members.living_rows())
        self.came_at = parts.clock.monotonic()
        if self.members.living:
            self.accompanied_at = self.came_at
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

    def note_others(self) -> None:
        """Another hub is there, or was until now."""
        self.accompanied_at = self._parts.clock.monotonic()

    def stop(self) -> None:
        """Take over from nobody any more; the heartbeat goes on until `leave`."""
        self._is_stopping = True

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
                self.note_others()
            if self.members.is_replaced and not self._is_stopping:
                self._parts.on_replaced(
                    ConflictError(
                        f"another hub took over node.number {self.members.number}: this one sent no heartbeat for too long"
                    )
                )
                return
            self._on_look()
            if self._is_following():
                now = self._parts.clock.wall()
                self._orphaned |= {gone: now - silent_s for gone, silent_s in (await self.members.take_over()).items()}
                if self._orphaned and not self._is_taking_over:
                    self._is_taking_over = True
                    Deferred.fromCoroutine(self._take_over())  # the heartbeat does not wait for the log
            self.unseen = ""
        except IotHubError as error:
            self.unseen = str(error)
            self._on_look()
            self._log.warning("could not read the other hubs' heartbeats, will retry", cause=str(error))
        except Exception as error:  # the service loop's edge: a defect with one look must not end the heartbeat
            self._log.error("defect in reading the other hubs' heartbeats", exc_info=error)
        finally:
            self._is_looking = False

    async def _look_around(self) -> None:
        """While a start waits for a store, this hub sends no heartbeat, and others take over from it: it has to begin anew."""
        is_held_up = self._parts.waiting.is_held_up
        self.is_silent |= is_held_up
        await self.members.refresh(is_silent=is_held_up)
        if self.is_silent and not is_held_up:
            self.is_silent, self.came_at = False, self._parts.clock.monotonic()

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
