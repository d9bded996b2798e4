"""How a hub stops, so that nothing that was promised is lost: the listeners first, then clients, what is under way, and the stores.

Knows the order of things and no part's inside. `iothub.hub.start` goes the other way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, TimeoutError

from iothub.base import log
from iothub.base.errors import BackendError
from iothub.base.reasons import Reason
from iothub.hub.open_sockets import OpenSockets
from iothub.hub.parts import Parts

if TYPE_CHECKING:
    from iothub.engine.state import Connection, Session

_CLIENTS_SHARE = 0.6  # of the time for a stop: until every client is gone and every write durable
_FINAL_PACKET_S = 2.0  # so long a client may take to read its DISCONNECT and go
_CLOSING_SHARE = 0.3  # for the threads of the stores
_LAST_S = 0.5  # what comes last has at least this, however long the others took
_TURN_S = 0.02


class Stop:
    """Stops a hub once. On the reactor thread, but `close`. `summary`: how it ended, for the last line of the log."""

    def __init__(self, parts: Parts, sockets: OpenSockets) -> None:
        self._parts = parts
        self._sockets = sockets
        self._closed: list[Connection] = []
        self._log = log.get(__name__)
        self.summary: dict[str, object] = {}

    async def run(self, *, drains: bool = False) -> None:
        """Close every connection, wait until what was promised is durable, close the stores. `drains`: as the settings say, before all that."""
        parts, clock = self._parts, self._parts.process.clock
        parts.control.lifecycle.on_hub("hub.stopping")
        limit_s = parts.process.settings.cluster.drain_on_stop_s
        if drains and limit_s:
            await parts.sockets.nodes.drain_own(limit_s, clock.monotonic)
        parts.monitoring.lag.stop()
        parts.tasks.stop()
        self._sockets.stop_accepting()
        self._close_connections()
        parts.control.streaming.stop_reading()
        begun = clock.monotonic()
        deadline = begun + parts.process.settings.node.stop_timeout_s * _CLIENTS_SHARE
        while clock.monotonic() < deadline and self._is_busy(clock.monotonic() - begun):
            await parts.process.pause(_TURN_S)
        if parts.control.cluster is not None:
            await parts.control.cluster.close_links()
        self._sockets.close_listeners()
        await self._sockets.close_http()
        unstored = parts.writers.writer.waiting[0] + parts.writers.journal_thread.waiting
        is_whole = await self.close_stores()
        self.summary = {
            "connections_closed": len(self._closed),
            "writes_given_up": 0 if is_whole else unstored,
            "stores_closed": is_whole,
            "seconds": round(clock.monotonic() - begun, 1),
        }

    async def run_unstarted(self) -> None:
        """The start failed: nothing was promised yet, so nothing waits for a server that does not answer."""
        if self._parts.control.cluster is not None:
            await self._parts.control.cluster.close_links()
        self._sockets.close_listeners()
        self._give_up_hbase()
        await self.close_stores()

    def expel(self) -> None:
        """Close every client and link, and leave the rest as a crash would: other hubs do for the sessions what is due."""
        self._sockets.stop_accepting()
        self._close_clients(Reason.EXPELLED)
        if self._parts.control.links is not None:
            self._parts.control.links.close()

    def close(self) -> None:
        """What is left when the reactor has ended. Blocks."""
        process, stores = self._parts.process, self._parts.stores
        self._parts.control.webhooks.deliverer.close(self._closing_s)
        stores.usage.close()
        process.threads.stop(self._closing_s)
        if stores.redis is not None:
            stores.redis.close()
        stores.accounts.close()
        process.data_dir.remove_hub()
        self._parts.monitoring.connection_log.write()
        if self.summary:
            self._log.info("stopped", **self.summary)

    # --- clients

    def _close_connections(self) -> None:
        """5.0 clients get DISCONNECT 0x8B. What was sent to whom is settled for those too that left earlier."""
        self._parts.control.plane.settle_reservations(self._close_clients(Reason.SERVER_SHUTDOWN))

    def _close_clients(self, reason: Reason) -> list[Session]:
        """Return all sessions, with a client or without one, of which something may be under way."""
        plane, brokers = self._parts.control.plane, self._parts.control.hub.brokers
        sessions: list[Session] = [session for broker in brokers for session in broker.plane.sessions.awake.values()]
        for session in sessions:
            if session.connection is not None:
                self._closed.append(session.connection)
                plane.close(session.connection, reason)
        return sessions

    def _is_busy(self, since_s: float) -> bool:
        control, writers = self._parts.control, self._parts.writers
        is_somebody_there = any(not connection.is_lost for connection in self._closed)
        is_waited_for = is_somebody_there and since_s < _FINAL_PACKET_S
        is_storing = writers.writer.waiting[0] or control.streaming.sink_store.pending[0]
        has_wills = control.hub.sessions.wills_under_way
        return bool(is_storing or writers.journal_thread.waiting or is_waited_for or has_wills)

    # --- stores

    async def close_stores(self) -> bool:
        """Write what is on its way, while the reactor still turns: HBase is reached through it. A server that is silent is given up.

        False: a thread of the stores did not end, and was left behind with its work.
        """
        parts, process, writers = self._parts, self._parts.process, self._parts.writers
        run, timeout_s = process.threads.run, self._closing_s
        until = process.clock.monotonic() + timeout_s
        parts.control.event_topics.finish()
        given_up = process.reactor.callLater(timeout_s, self._give_up_hbase)
        await self._leave_ledger()
        await run("closing.streams", parts.control.streaming.close, timeout_s)
        has_stored_all = await run("closing.queues", writers.writer.close, self._left_s(until))
        writers.journal.flush()
        Deferred.fromCoroutine(parts.control.metering.finish()).addErrback(  # the close below waits for what it writes
            lambda failure: self._log.error("defect in metering", exc_info=failure.value)
        )
        has_logged_all = await self._close_log(until)
        if has_logged_all:
            await self._close_states(self._left_s(until))  # else its thread still works with them
        await self._close_statistics(self._left_s(until))
        if given_up.active():
            given_up.cancel()
        self._give_up_hbase()
        return bool(has_stored_all and has_logged_all)

    async def _close_log(self, until: float) -> bool:
        """Say whether the log has everything. Other hubs hear of the end afterwards, when nothing of theirs is followed any more."""
        cluster = self._parts.control.cluster
        close = self._parts.writers.journal_thread.close
        if cluster is not None:
            await cluster.stop_following()
        has_logged_all = await self._parts.process.threads.run("closing.events", close, self._left_s(until))
        if cluster is not None:
            await cluster.leave(has_logged_all=has_logged_all)
        return has_logged_all

    async def _leave_ledger(self) -> None:
        """Give back what this hub held of the tenants' limits; if nobody hears of it, that ends with its lease."""
        shared_quota = self._parts.stores.shared_quota
        if shared_quota is None:
            return
        try:
            await shared_quota.stop()
        except BackendError as error:
            self._log.warning(
                "could not deregister from the quota ledger; its lease expires by itself", cause=str(error)
            )

    def _give_up_hbase(self) -> None:
        """Wait for HBase no longer. What fails of that is no alarm: there is nothing to look at."""
        hbase = self._parts.stores.hbase
        if hbase is not None:
            self._parts.monitoring.store_alarms.end()
            self._parts.process.waiting.end()
            hbase.close()

    async def _close_states(self, timeout_s: float) -> None:
        """What is folded and not written in time is folded again by the next start."""
        process, states = self._parts.process, self._parts.stores.states
        closed = process.threads.run("closing.states", states.close)
        try:
            await closed.addTimeout(timeout_s, process.reactor)
        except TimeoutError:
            self._log.warning("session states not written in time; the next start writes the rest from the log")

    async def _close_statistics(self, timeout_s: float) -> None:
        """Last: nothing else waits for them."""
        run, thread = self._parts.process.threads.run, self._parts.writers.statistics_thread
        events = self._parts.stores.statistics_log
        if thread is not None and events is not None and await run("closing.statistics", thread.close, timeout_s):
            await run("closing.statistics_log", events.close)

    @property
    def _closing_s(self) -> float:
        return self._parts.process.settings.node.stop_timeout_s * _CLOSING_SHARE

    def _left_s(self, until: float) -> float:
        return max(until - self._parts.process.clock.monotonic(), _LAST_S)
