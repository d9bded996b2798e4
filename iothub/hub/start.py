"""How a hub starts: from the inside out, the listeners last.

Knows the order of things and no part's inside. `iothub.hub.stop` goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from iothub.base import gc_tuning, log
from iothub.base.errors import UnavailableError
from iothub.hub.open_sockets import OpenSockets
from iothub.hub.parts import Parts
from iothub.hub.start_times import HOW_LONG, StartTimes
from iothub.hub.stores.queue_repair import rebuild_queues
from iothub.records.state import SessionState
from iothub_services.events.port import Offsets
from iothub_tenants.background.session_recovery import Peers


class Start:
    """Starts a hub once, on the reactor thread."""

    def __init__(self, parts: Parts, sockets: OpenSockets, announce: Callable[[str], None], times: StartTimes) -> None:
        """`announce`: gets the addresses of the listeners. `times`: since the program began."""
        self._parts = parts
        self._sockets = sockets
        self._announce = announce
        self._times = times
        self._log = log.get(__name__)

    async def run(self) -> None:
        """Load what is durable, then open the listeners; only then is the hub ready. Raises IotHubError."""
        parts, cluster, times = self._parts, self._parts.control.cluster, self._times
        times.ended("loading")
        parts.process.hub_file.report_last_run()
        self._open_http()
        self._sockets.try_ports()
        self._open_clients()
        await self._take_stores()
        times.ended("servers")
        peers = None if cluster is None else await cluster.join()
        times.ended("joining")
        watcher = await parts.tasks.accounts.following.watch()
        sessions, folded = await self._recover(peers)
        await parts.tasks.accounts.catch_up(watcher)
        times.ended("sessions")
        if cluster is not None:
            await cluster.open(folded)
        times.ended("linking")
        self._require_wanted()
        if not sessions:  # with them it starts all the same: they are kept, and `/readyz` says that nobody gets in
            parts.monitoring.watch.require_room()
        self._sockets.open(is_draining=parts.process.phase.is_draining)
        await parts.tasks.machine.run_once()
        self._warn_of_descriptors()
        self._note_ready()
        times.ended("opening")
        parts.process.phase.become_ready()
        parts.tasks.start()
        parts.monitoring.lag.start()
        gc_tuning.settle()
        parts.control.lifecycle.on_hub("hub.started")
        if parts.process.phase.is_draining:
            self._log.warning("draining as before this process: no client is let in before `iothub cluster resume`")
        self._log.info("ready", twin=parts.process.twin, sessions=sessions, **self._addresses())
        self._log.info(HOW_LONG, **times.fields())

    def _require_wanted(self) -> None:
        """Raises UnavailableError: the hub has been stopped meanwhile, and its listeners must not open."""
        if self._parts.process.phase.is_stopping:
            raise UnavailableError("the hub stops")

    def _warn_of_descriptors(self) -> None:
        """Warn if file descriptors allow fewer connections than the settings."""
        found, wanted = self._parts.process.descriptors, self._parts.control.plane.limits.connections
        if found.servable < wanted:
            self._log.warning(
                "file descriptors allow fewer connections than max_connections",
                limit=found.limit,
                max_connections=wanted,
                possible=found.servable,
                advice=f"raise the limit to {found.limit_for(wanted)} (LimitNOFILE in systemd, `ulimit -n`), "
                "or lower listeners.NAME.max_connections",
            )

    # --- servers and what is on them

    def _open_http(self) -> None:
        hub_file = self._parts.process.hub_file
        self._parts.control.streaming.start()
        self._sockets.open_http()
        hub_file.note_http(self._sockets.http_address())
        hub_file.note_start("")

    def _open_clients(self) -> None:
        """Speak to servers from here on."""
        stores = self._parts.stores
        if stores.hbase is not None:
            stores.hbase.open()
        if stores.redis is not None:
            stores.redis.start()  # nothing waits for it: what is on it does without

    async def _take_stores(self) -> None:
        """Wait for every server; note whose the stores are, once all have been asked and none is somebody else's."""
        process, stores = self._parts.process, self._parts.stores
        accounts, installation, drivers, waiting = stores.accounts, stores.installation, stores.drivers, process.waiting
        learn = partial(installation.learn, accounts, process.data_dir)
        await waiting.until_all_answer({"the accounts database": learn} if accounts.is_on_server else {})
        if stores.shared_quota is not None:
            stores.shared_quota.start()  # others may have to declare what they have: that goes on while this one starts
        needed = sorted(drivers.needed.items(), key=lambda each: each[0] == "HBase")
        await waiting.until_all_answer(
            dict(needed)
        )  # HBase last: its client is patient, its gateways are named at once
        await waiting.until_all_answer({name: owned.claim for name, owned in drivers.owned.items()})
        await process.threads.run("housekeeping.installation", installation.note, process.data_dir)

    # --- sessions

    async def _recover(self, peers: Peers | None) -> tuple[int, Offsets]:
        """Give every session its place back. Returns how many sessions there are, and up to where the log is known by them."""
        parts, control, writers = self._parts, self._parts.control, self._parts.writers
        states = parts.stores.states
        loaded = await self._load_sessions()
        folded = () if control.cluster is None else states.folded  # now: a later look folds more than `loaded` has
        sessions = await control.recovery.load_sessions(loaded, peers)
        self._require_wanted()
        control.sys_topics.resume()
        writers.journal_thread.start()
        if writers.statistics_thread is not None:
            writers.statistics_thread.start()
        return sessions, folded

    async def _load_sessions(self) -> list[SessionState]:
        """Every session that is not lost has a queue after this, also when a damaged page took its own."""
        states = await self._load_states()
        if getattr(self._parts.stores.queues, "needs_rebuild", False):
            store_alarms = self._parts.monitoring.store_alarms
            await rebuild_queues(self._parts.writers.queues, states, self._parts.process.clock, store_alarms)
        return states

    async def _load_states(self) -> list[SessionState]:
        """Fold the log. A file that fails ends the start; for a server it is waited as before."""
        process, stores = self._parts.process, self._parts.stores
        if not stores.drivers.needed:
            return await process.threads.run("housekeeping.load", stores.states.load)
        load = partial(process.threads.run, "housekeeping.load", stores.states.load)
        return await process.waiting.until_loaded(" and ".join(stores.drivers.needed), load)

    # --- addresses

    def _addresses(self) -> dict[str, str]:
        return {**self._sockets.listening(), **self._sockets.http_address()}

    def _note_ready(self) -> None:
        """The file first: whoever hears of a hub that is ready reads it."""
        self._parts.process.hub_file.note_ready(self._addresses())
        self._announce(", ".join(self._sockets.listening().values()))
