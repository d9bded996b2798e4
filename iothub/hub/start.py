"""One hub's life: it starts from the inside out, serves, and stops so that nothing that was promised is lost.

Knows the order of things and no part's inside. The doors open last and close first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from twisted.internet.defer import Deferred, TimeoutError

from iothub.base import gc_tuning, log
from iothub.base.errors import BackendError, ConfigError, ConflictError, IotHubError, UnavailableError
from iothub.base.reasons import Reason
from iothub.hub import admin_socket
from iothub.hub.from_settings import raise_file_limit
from iothub.hub.health import NodeHealth
from iothub.hub.periodic_tasks import Duties
from iothub.hub.queue_repair import rebuild_queues
from iothub.hub.reactor_lag import Heartbeat
from iothub.net import http
from iothub_services.metrics.alarms import AlarmName
from iothub_tenants.accounts import commands
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.background.session_recovery import Awakening
from iothub_tenants.broker.queue_bounds import QueueBounds

if TYPE_CHECKING:
    from iothub.engine.state import Connection, Session
    from iothub.hub.compose import Node
    from iothub.net.admin_server import AdminSocket
    from iothub.records.state import SessionState

_GOODBYE_SHARE = 0.6  # of the time for a stop: until every client is gone and every write durable
_FAREWELL_S = 2.0  # so long a client may take to read its farewell and go
_CLOSING_SHARE = 0.3  # for the threads of the stores
_LAST_S = 0.5  # what comes last has at least this, however long the others took
T = TypeVar("T")

_RELOAD = "reload"  # subject of the alarm about certificates that could not be reloaded


class Life:
    """Runs a node once. `failure`: what kept it from starting."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._log = log.get(__name__)
        self._announce: Callable[[str], None] = lambda _addresses: None
        self._heartbeat = Heartbeat(node.reactor.callLater, node.clock, node.felt)
        self._dismissed: list[Connection] = []
        self._admin_socket: AdminSocket | None = None
        self._is_leaving = False
        self._farewell: dict[str, object] = {}  # how it ended, for the last line of the log
        self.failure: IotHubError | None = None

    def run(self, announce: Callable[[str], None]) -> int:
        """Start, serve, stop. Raises what kept the hub from starting."""
        node = self._node
        self._announce = announce
        raise_file_limit()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, lambda *_: node.reactor.callFromThread(self.reload))
        node.threads.start()
        node.writer.start(cast("Any", node.plane))
        node.reactor.callWhenRunning(self._begin)
        node.reactor.run(installSignalHandlers=False)
        node.usage.close()
        node.threads.stop(self._closing_s)
        if node.redis is not None:
            node.redis.close()
        node.accounts.close()
        node.data_dir.remove_hub()
        if self._farewell:
            self._log.info("stopped", **self._farewell)
        if self.failure is not None:
            raise self.failure
        return 0

    # --- the start

    def _begin(self) -> None:
        Deferred.fromCoroutine(self._start()).addErrback(self._failed)

    def _failed(self, failure: Any) -> None:
        """The start did not succeed: leave with the error that says why."""
        error = failure.value
        if self._node.is_stopping:
            self._log.info("the start was given up", cause=str(error))
            return
        self.failure = error if isinstance(error, IotHubError) else IotHubError(f"the start failed: {error!r}")
        if not isinstance(error, IotHubError):
            self._log.error("defect at start", exc_info=error)
        self._node.listeners.close()
        self._close_admin_socket()
        self._give_up_hbase()  # nothing was promised yet: nothing waits for a server that does not answer
        self._leave(self._close_stores())

    async def _start(self) -> None:
        """Load what is durable, then open the doors; only then is the hub ready."""
        node, run = self._node, self._node.threads.run
        duties = await self._open_faces()
        node.waiting.told = self._note_start
        self._note_start("")
        node.listeners.try_ports()  # nobody waits for servers in vain
        self._open_clients()
        await self._take_stores()
        shared = node.shared_stores
        neighbours = None if shared is None else await shared.join(self._replaced)
        is_first = neighbours is None or not neighbours.living
        await run("accounts.sweep", lambda: commands.sweep(node.accounts, is_starting=is_first))
        node.watcher = await run("accounts.watch", ChangeWatcher, node.accounts)
        bounds = QueueBounds(node.queue_admin, node.brokers, node.reactor.callLater)
        last_beat = node.data_dir.last_beat()
        awakening = Awakening(
            node.hub,
            node.registry,
            node.queue_admin,
            bounds,
            run,
            last_beat=last_beat,
            neighbours=neighbours,
            patiently=self._patiently,
        )
        states = await self._load_sessions()
        folded = (
            node.states.folded if shared is not None else ()
        )  # now: a second look at the log folds more than `states` has
        sessions = await awakening.load(states)
        self._require_wanted()
        node.sys_topics.resume()
        node.journal_thread.start()
        if node.statistics_thread is not None:
            node.statistics_thread.start()
        await duties.catch_up()
        if shared is not None:
            await shared.open(folded)
        self._require_wanted()
        if not sessions:  # with them it starts all the same: they are kept, and `/readyz` says that nobody gets in
            node.watch.require_room()
        self._open_listeners()
        await duties.watch()
        self._announce_addresses()
        node.telemetry.is_ready = True
        duties.plan()
        node.upkeep.start()
        self._heartbeat.start()
        gc_tuning.settle()
        node.hub_happened("hub.started")
        self._log.info("ready", twin=node.backend, sessions=sessions, **self._addresses())

    def _open_listeners(self) -> None:
        self._node.listeners.start()
        self._admin_socket = admin_socket.open_socket(self._node)

    def _require_wanted(self) -> None:
        """Raises UnavailableError: the hub has been told to stop meanwhile, and its doors must not open."""
        if self._node.is_stopping:
            raise UnavailableError("the hub stops")

    def _open_clients(self) -> None:
        """Speak to servers from here on."""
        node = self._node
        if node.hbase is not None:
            node.hbase.open()
        if node.redis is not None:
            node.redis.start()  # nothing waits for it: what is on it does without

    async def _take_stores(self) -> None:
        """Wait for every server; leave word whose the stores are, once all have been looked at and none is somebody else's."""
        node = self._node
        accounts = {"the accounts database": node.know_accounts} if node.accounts.is_on_server else {}
        await node.waiting.until_all_answer(accounts)
        node.know_installation()
        if node.shared_quota is not None:
            node.shared_quota.start()  # others may have to declare what they have: that goes on while this one starts
        needed = sorted(node.drivers.needed.items(), key=lambda each: each[0] == "HBase")
        await node.waiting.until_all_answer(
            dict(needed)
        )  # HBase last: its client is patient, its gateways are named at once
        await node.waiting.until_all_answer({name: owned.claim for name, owned in node.drivers.owned.items()})
        await node.threads.run("housekeeping.installation", node.installation.note, node.data_dir)

    def _patiently(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Do a piece of the loading, again if a store fails in the middle. Where all are files, that ends the start."""
        node = self._node
        has_servers = node.drivers.needed or node.accounts.is_on_server
        return node.waiting.until_loaded("the stores", work) if has_servers else work()

    async def _load_sessions(self) -> list[SessionState]:
        """Every session that is not lost has a queue after this, also when a damaged page took its own."""
        node = self._node
        states = await self._load_states()
        if getattr(node.queues, "needs_rebuild", False):
            await rebuild_queues(node.queue_admin, states, node.clock, node.store_alarms)
        return states

    async def _load_states(self) -> list[SessionState]:
        """Fold the log. A file that fails ends the start; for a server it is waited as before."""
        node = self._node
        if not node.drivers.needed:
            return await node.threads.run("housekeeping.load", node.states.load)
        load = partial(node.threads.run, "housekeeping.load", node.states.load)
        return await node.waiting.until_loaded(" and ".join(node.drivers.needed), load)

    async def _open_faces(self) -> Duties:
        """Health and duties know each other; health is asked as soon as HTTP listens."""
        node = self._node
        node.health = NodeHealth(node)
        duties = Duties(node)
        node.health.feed(duties)
        node.streaming.start(node.plane)
        http_settings = node.settings.http
        if http_settings.port is not None:
            node.http_face = http.HttpFace(node.health, node.reactor)
            node.http_port = http.listen(node.reactor, node.http_face, http_settings.bind, http_settings.port)
        return duties

    def _addresses(self) -> dict[str, str]:
        node = self._node
        addresses = {name: f"{host}:{port}" for name, (host, port) in node.listeners.addresses().items()}
        if node.http_port is not None:
            host = node.http_port.getHost()
            addresses["http"] = f"{host.host}:{host.port}"
        return addresses

    def _announce_addresses(self) -> None:
        addresses = self._addresses()
        doors = [address for name, address in addresses.items() if name != "http"]
        self._announce(", ".join(doors))
        self._note(addresses)

    def _note(self, more: Mapping[str, str]) -> None:
        """Leave word in `hub.json`."""
        node = self._node
        facts = {"pid": os.getpid(), "version": node.version, "twin": node.backend, "started": node.started_at}
        node.data_dir.write_hub({**facts, **more})

    def _note_start(self, reason: str) -> None:
        """Who asks `iothub status` hears by this what a start does, also where HTTP is off. Nothing depends on it."""
        if self._node.telemetry.is_ready:
            return
        http_address = {name: address for name, address in self._addresses().items() if name == "http"}
        with suppress(UnavailableError):
            self._note({**http_address, "starting": reason or "sessions are being loaded"})

    def _replaced(self, error: ConflictError) -> None:
        """Another hub has this one's place: it must not go on."""
        self._log.error("the hub must stop", cause=str(error))
        self.failure = error
        self._node.is_stopping = True
        self._stop("replaced")

    # --- SIGHUP

    def reload(self) -> None:
        """Read the certificates again. One that cannot be used changes nothing but the alarms."""
        node = self._node
        if not node.telemetry.is_ready:
            return
        try:
            node.listeners.reload()
        except ConfigError as error:
            node.alarms.clear(AlarmName.CERTIFICATE_BAD, subject=_RELOAD)  # another text than last time's, perhaps
            node.alarms.raise_(AlarmName.CERTIFICATE_BAD, subject=_RELOAD, detail=str(error))
            node.telemetry.reloaded(node.clock.wall(), is_successful=False)
            return
        node.alarms.clear(AlarmName.CERTIFICATE_BAD, subject=_RELOAD)
        node.watch.look_at_certificates()
        node.telemetry.reloaded(node.clock.wall(), is_successful=True)
        self._log.info("certificates were read again; new handshakes use them")

    # --- the end

    def _signalled(self, number: int, _frame: object) -> None:
        """SIGTERM or SIGINT: stop cleanly; a second one stops at once."""
        node = self._node
        if node.is_stopping:
            os._exit(128 + number)
        node.is_stopping = True
        node.reactor.callFromThread(self._stop, signal.Signals(number).name)

    def _stop(self, why: str) -> None:
        node = self._node
        self._log.info("stopping", signal=why)
        node.waiting.end()
        node.telemetry.is_ready = False
        self._leave(self._shut_down())

    def _leave(self, farewell: Coroutine[Deferred[object], object, object]) -> None:
        """Do what is left to do, then let the reactor end; once."""
        if self._is_leaving:
            farewell.close()
            return
        self._is_leaving = True
        Deferred.fromCoroutine(farewell).addErrback(
            lambda failure: self._log.error("defect while stopping", exc_info=failure.value)
        ).addBoth(lambda _: self._node.reactor.stop())

    async def _shut_down(self) -> None:
        """Say goodbye, wait until what was promised is durable, close."""
        node = self._node
        node.hub_happened("hub.stopping")
        self._heartbeat.stop()
        node.upkeep.stop()
        node.listeners.stop_accepting()
        self._close_admin_socket()
        self._dismiss()
        node.streaming.stop_reading()
        begun = node.clock.monotonic()
        deadline = begun + node.settings.node.stop_timeout_s * _GOODBYE_SHARE
        while node.clock.monotonic() < deadline and self._is_busy(node.clock.monotonic() - begun):
            await node.pause(0.02)
        node.listeners.close()
        if node.http_port is not None:
            await node.http_port.stopListening()
        unstored = node.writer.waiting[0] + node.journal_thread.waiting
        is_whole = await self._close_stores()
        self._farewell = {
            "connections_closed": len(self._dismissed),
            "writes_given_up": 0 if is_whole else unstored,
            "stores_closed": is_whole,
            "seconds": round(node.clock.monotonic() - begun, 1),
        }

    def _close_admin_socket(self) -> None:
        if self._admin_socket is not None:
            self._admin_socket.close()

    def _dismiss(self) -> None:
        """Close every connection; 5.0 clients hear 0x8B. What was sent to whom is settled for those too that left earlier."""
        node = self._node
        sessions: list[Session] = [session for broker in node.brokers for session in broker.plane.sessions.values()]
        for session in sessions:
            if session.connection is not None:
                self._dismissed.append(session.connection)
                node.plane.close(session.connection, Reason.SERVER_SHUTDOWN)
        node.plane.settle_reservations(sessions)

    def _is_busy(self, since_s: float) -> bool:
        node = self._node
        is_somebody_there = any(not connection.is_lost for connection in self._dismissed)
        is_waited_for = is_somebody_there and since_s < _FAREWELL_S
        is_storing = node.writer.waiting[0] or node.streaming.outlet.pending[0]
        return bool(is_storing or node.journal_thread.waiting or is_waited_for or node.sessions.wills_under_way)

    async def _close_stores(self) -> bool:
        """Write what is on its way, while the reactor still turns: HBase is reached through it. A server that is silent is given up.

        False: a thread of the stores had to be left alone with what it had.
        """
        node, run = self._node, self._node.threads.run
        timeout_s, until = self._closing_s, node.clock.monotonic() + self._closing_s
        given_up = node.reactor.callLater(timeout_s, self._give_up_hbase)
        await self._leave_ledger()
        await run("closing.streams", node.streaming.close, timeout_s)
        has_stored_all = await run("closing.queues", node.writer.close, self._left_s(until))
        node.journal.flush()
        Deferred.fromCoroutine(node.metering.finish()).addErrback(  # what it hands over, the close below waits for
            lambda failure: self._log.error("defect in metering", exc_info=failure.value)
        )
        if node.shared_stores is not None:
            await node.shared_stores.stop_following()
        has_said_all = await run("closing.events", node.journal_thread.close, self._left_s(until))
        if node.shared_stores is not None:
            await node.shared_stores.leave(has_said_all=has_said_all)
        if has_said_all:
            await self._close_states(self._left_s(until))  # else its thread still works with them
        await self._close_statistics(self._left_s(until))
        if given_up.active():
            given_up.cancel()
        self._give_up_hbase()
        return bool(has_stored_all and has_said_all)

    async def _leave_ledger(self) -> None:
        """Give back what this hub held of the tenants' limits; if nobody hears of it, that ends with its lease."""
        if self._node.shared_quota is None:
            return
        try:
            await self._node.shared_quota.stop()
        except BackendError as error:
            self._log.warning("the quota ledger was not told of the end; its lease ends by itself", cause=str(error))

    def _give_up_hbase(self) -> None:
        """Wait for HBase no longer. What fails of that is no alarm: there is nothing to look at."""
        if self._node.hbase is not None:
            self._node.store_alarms.end()
            self._node.waiting.end()
            self._node.hbase.close()

    async def _close_states(self, timeout_s: float) -> None:
        """What is folded and not written in time is folded again by the next start."""
        closed = self._node.threads.run("closing.states", self._node.states.close)
        try:
            await closed.addTimeout(timeout_s, self._node.reactor)
        except TimeoutError:
            self._log.warning("the session states did not close in time; the next start folds the rest")

    async def _close_statistics(self, timeout_s: float) -> None:
        """Last: nothing else waits for them."""
        node = self._node
        thread, log = node.statistics_thread, node.statistics_log
        if (
            thread is not None
            and log is not None
            and await node.threads.run("closing.statistics", thread.close, timeout_s)
        ):
            await node.threads.run("closing.statistics_log", log.close)

    @property
    def _closing_s(self) -> float:
        return self._node.settings.node.stop_timeout_s * _CLOSING_SHARE

    def _left_s(self, until: float) -> float:
        return max(until - self._node.clock.monotonic(), _LAST_S)
