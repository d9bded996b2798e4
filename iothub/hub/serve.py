"""One hub process: the reactor, its signals and the exit code, from the lock on the data directory to its release.

Knows no order of starting or stopping: `iothub.hub.start` and `iothub.hub.stop` do. With several workers this process is their supervisor
(`iothub.hub.workers.supervisor`), and each of them is a hub process.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.main import installReactor

from iothub.base import log
from iothub.base.clock import SystemClock
from iothub.base.errors import ConflictError, ExpelledError, IotHubError
from iothub.config.datadir import DataDir, Lock
from iothub.config.sections import Config
from iothub.config.workers import node_numbers
from iothub.hub import twisted_log
from iothub.hub.admin_socket import answers
from iothub.hub.backup_hold import BackupHold
from iothub.hub.cluster_members import ClusterMembers
from iothub.hub.composition.compose import compose
from iothub.hub.from_settings import configure_log
from iothub.hub.open_sockets import OpenSockets
from iothub.hub.parts import Parts
from iothub.hub.phase import Phase
from iothub.hub.reload import Read, Reloader
from iothub.hub.start import Start
from iothub.hub.stop import Stop
from iothub.hub.stores.drivers import needs_store_process
from iothub.hub.stores.needs import require_descriptors, room_bytes
from iothub.hub.stores.startable import require_startable
from iothub.hub.workers.api_process import ApiProcess
from iothub.hub.workers.service_manager import ServiceManager
from iothub.hub.workers.supervised import BEAT_S, NewsReader, Reporter
from iothub.net.backend import select_backend
from iothub.net.descriptors import file_limit, raise_file_limit
from iothub.net.hub_reactor import HubReactor

BEGIN_AGAIN, BEGIN_AGAIN_DRAINING = -1, -2
"""Instead of an exit code: the process is to be replaced by one with the same command line, at once; it drained, and goes on with that."""

_FINAL_PACKET_S = 0.5  # until clients have their DISCONNECT; nobody is waited for


def serve(
    settings: Config,
    data_dir: DataDir,
    read: Read,
    *,
    api_command: Sequence[str] = (),
    is_fail_fast: bool = False,
    is_only_checked: bool = False,
    is_draining: bool = False,
) -> int:
    """Run one hub on a data directory until SIGTERM or SIGINT; returns the exit code, BEGIN_AGAIN or BEGIN_AGAIN_DRAINING.

    `read`: reads the settings again, for a reload. `api_command`: of the REST API's process; empty: there is none.
    `is_fail_fast`: do not wait for servers that must answer before the start.
    `is_only_checked`: look for what keeps a hub from starting here, and start none. `is_draining`: it begins again, and drained before.

    Raises: ConflictError (somebody else runs on it, future schema), UnavailableError (port in use, directory not writable), ConfigError.
    """
    raise_file_limit()
    require_descriptors(settings, file_limit())
    lock = data_dir.lock("iothub serve", room_bytes(settings, data_dir))
    try:
        require_startable(settings, data_dir)
        if is_only_checked:
            return 0
        data_dir.remove_api()  # of a hub that was killed
        if settings.node.workers > 1:
            return _supervise(settings, data_dir, lock, api_command)
        reactor = _install_reactor(settings)
        phase = Phase(is_draining=is_draining)
        parts = compose(settings, data_dir, reactor, SystemClock(), phase, is_fail_fast=is_fail_fast)
        api = ApiProcess(api_command, data_dir, reactor)

        def announce(address: str) -> None:
            lock.announce(address)
            api.start()

        try:
            return HubProcess(parts, announce, read, ServiceManager(os.environ)).run()
        finally:
            api.end()
    finally:
        lock.release()


def serve_worker(
    settings: Config,
    data_dir: DataDir,
    read: Read,
    report: Reporter,
    *,
    is_fail_fast: bool = False,
    is_draining: bool = False,
) -> int:
    """Run one of several workers, whose supervisor has made the checks of a start; returns as `serve`. `settings`, `data_dir`: the worker's.

    `report`: hears that it is ready, from then on each second that it runs, and whether it drains. `is_draining`: its former process did.

    Raises: as `serve`.
    """
    raise_file_limit()
    require_descriptors(settings, file_limit())
    data_dir.make_own()
    lock = data_dir.lock("iothub serve")

    try:
        reactor = _install_reactor(settings)

        def announce(address: str) -> None:
            lock.announce(address)
            report.ready()
            _beat(reactor, report)

        phase = Phase(is_draining=is_draining, on_drain=report.drains)
        parts = compose(settings, data_dir, reactor, SystemClock(), phase, is_fail_fast=is_fail_fast)
        reactor.addReader(NewsReader(parts.monitoring.store_alarms.store_process_changed, reactor.removeReader))
        return HubProcess(parts, announce, read, ServiceManager(), is_supervised=True).run()
    finally:
        lock.release()


def _beat(reactor: Any, report: Reporter) -> None:
    report.beat()
    reactor.callLater(BEAT_S, _beat, reactor, report)


def _supervise(settings: Config, data_dir: DataDir, lock: Lock, api_command: Sequence[str]) -> int:
    log.name_process("supervisor")
    reactor = _install_reactor(settings)
    from iothub.hub.workers.supervisor import Supervisor  # what it stands on takes the reactor that is there

    facts = {"pid": os.getpid(), "version": version("iothub"), "twin": select_backend(), "started": time.time()}
    facts["workers"] = settings.node.workers
    facts["nodes"] = list(node_numbers(settings, data_dir))

    def announce(worker: Mapping[str, object]) -> None:
        addresses = {name: address for name, address in worker.items() if name not in facts}
        data_dir.write_hub({**facts, **addresses})
        lock.announce(", ".join(str(address) for name, address in addresses.items() if name != "http"))
        api.start()

    data_dir.write_hub({**facts, "starting": "its workers are starting"})
    command = [sys.executable, *sys.orig_argv[1:]]
    api = ApiProcess(api_command, data_dir, reactor)
    try:
        return Supervisor(
            settings,
            data_dir,
            reactor,
            command,
            announce,
            ServiceManager(os.environ),
            has_store=needs_store_process(settings, data_dir),
        ).run()
    finally:
        api.end()
        data_dir.remove_hub()


def _install_reactor(settings: Config) -> Any:
    configure_log(settings.log)
    twisted_log.bridge()
    reactor = HubReactor()
    installReactor(reactor)  # type: ignore[no-untyped-call]  # plug-ins that import the reactor get this one
    return reactor


class HubProcess:
    """Runs a hub once."""

    def __init__(
        self,
        parts: Parts,
        announce: Callable[[str], None],
        read: Read,
        manager: ServiceManager,
        *,
        is_supervised: bool = False,
    ) -> None:
        """`is_supervised`: its supervisor kills it when it must end at once, and a second signal to stop changes nothing."""
        process = parts.process
        self._announce = announce
        self._manager = manager
        self._reloader = Reloader(parts, read, manager)
        self._parts = parts
        self._reactor = process.reactor
        self._phase = process.phase
        hold = BackupHold(parts.stores.drivers.commits(parts.stores.commits), process.threads.run, process.pause)
        answer = answers(
            parts.sockets.verbs,
            self._reloader,
            hold,
            parts.sockets.brief,
            ClusterMembers(process, parts.control, parts.sockets),
        )
        sockets = OpenSockets(parts.sockets, process.settings, process.reactor, process.data_dir, answer)
        self._start = Start(parts, sockets, self._ready)
        parts.control.on_replaced.bind(self._replaced)
        self._stop = Stop(parts, sockets)
        self._log = log.get(__name__)
        self._is_ending = False
        self._failure: IotHubError | None = None
        self._is_expelled = False
        self._is_supervised = is_supervised

    def run(self) -> int:
        """Start, serve, stop. Raises what kept the hub from starting, or from going on."""
        self._take_signals()
        self._parts.process.threads.start()
        self._parts.writers.writer.start()
        self._reactor.callWhenRunning(self._manager.keep_alive, self._reactor.callLater)
        self._reactor.callWhenRunning(self._begin)
        self._reactor.run(installSignalHandlers=False)
        if self._is_expelled:
            return BEGIN_AGAIN_DRAINING if self._phase.is_draining else BEGIN_AGAIN
        self._stop.close()
        if self._failure is not None:
            raise self._failure
        return 0

    def _take_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, lambda *_: self._reactor.callFromThread(self._reloader.signalled))

    def _begin(self) -> None:
        Deferred.fromCoroutine(self._start.run()).addErrback(self._failed)

    def _ready(self, addresses: str) -> None:
        self._announce(addresses)
        self._manager.ready(f"ready: {addresses}")

    def _failed(self, failure: Any) -> None:
        """The start did not succeed: end with the error that says why."""
        error = failure.value
        if self._phase.is_stopping:
            self._log.info("start aborted", cause=str(error))
            return
        self._failure = error if isinstance(error, IotHubError) else IotHubError(f"the start failed: {error!r}")
        if not isinstance(error, IotHubError):
            self._log.error("defect at start", exc_info=error)
        self._end(self._stop.run_unstarted())

    def _replaced(self, error: ConflictError) -> None:
        """Another hub took over this one's node.number, or the others go on without this one: stop at once."""
        if isinstance(error, ExpelledError):
            self._expelled(error)
            return
        self._log.error("another hub took over this node.number, stopping", cause=str(error))
        self._failure = error
        self._phase.stop()
        self._stop_now("replaced")

    def _expelled(self, error: ExpelledError) -> None:
        """Close every client, and begin again as a new incarnation.

        Invariant: for the stores this is a crash. The others do for its sessions what is due when a hub has died, Wills among it: an orderly end
        would do it a second time, under an incarnation that is gone. Nothing that was acknowledged depends on one.
        """
        if self._is_ending:
            return
        self._is_ending = True
        self._log.error("the other hubs go on without this one; beginning again", cause=str(error))
        self._is_expelled = True
        self._phase.stop()
        self._phase.end_ready()
        self._stop.expel()
        self._parts.process.data_dir.remove_hub()  # or the next start would take it for a crash
        self._reactor.callLater(_FINAL_PACKET_S, self._reactor.stop)

    def _signalled(self, number: int, _frame: object) -> None:
        """SIGTERM or SIGINT: stop cleanly; a second one stops at once."""
        if self._phase.is_stopping:
            if not self._is_supervised:
                os._exit(128 + number)
            return
        self._phase.stop()
        self._reactor.callFromThread(self._stop_now, signal.Signals(number).name)

    def _stop_now(self, why: str) -> None:
        self._log.info("stopping", signal=why)
        self._manager.stopping()
        self._parts.process.waiting.end()
        drains = self._phase.is_ready and why == signal.SIGTERM.name  # who stops it by hand does not wait
        self._phase.end_ready()
        self._end(self._stop.run(drains=drains))

    def _end(self, rest: Coroutine[Any, Any, None]) -> None:
        """Do what is left to do, then let the reactor end; once."""
        if self._is_ending:
            rest.close()
            return
        self._is_ending = True
        Deferred.fromCoroutine(rest).addErrback(
            lambda failure: self._log.error("defect while stopping", exc_info=failure.value)
        ).addBoth(lambda _: self._reactor.stop())
