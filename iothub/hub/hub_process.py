"""One hub in this process: started, run and stopped once, with its signals and what it ends with.

Knows no order of starting or stopping: `iothub.hub.start` and `iothub.hub.stop` do. It is loaded when the process is to serve clients: a supervisor
and its store process do without.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred

from iothub.base import log
from iothub.base.clock import SystemClock
from iothub.base.errors import ConflictError, ExpelledError, IotHubError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.admin_socket import answers
from iothub.hub.backup_hold import BackupHold
from iothub.hub.cluster_members import ClusterMembers
from iothub.hub.composition.compose import compose
from iothub.hub.open_sockets import OpenSockets
from iothub.hub.parts import Parts
from iothub.hub.phase import BEGIN_AGAIN, BEGIN_AGAIN_DRAINING, Phase
from iothub.hub.reload import Read, Reloader
from iothub.hub.start import Start
from iothub.hub.start_times import StartTimes
from iothub.hub.stop import Stop
from iothub.hub.workers.service_manager import ServiceManager

_FINAL_PACKET_S = 0.5  # until clients have their DISCONNECT; nobody is waited for


def make_parts(settings: Config, data_dir: DataDir, reactor: Any, phase: Phase, *, is_fail_fast: bool) -> Parts:
    """Make the parts of a hub for this process. Raises as `compose`."""
    return compose(settings, data_dir, reactor, SystemClock(), phase, is_fail_fast=is_fail_fast)


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
        self._start = Start(parts, sockets, self._ready, StartTimes())
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
        would do it a second time, under an incarnation that is gone. Nothing that was stored depends on one.
        What the others' links have not acknowledged is dropped, as of a machine that is lost: messages for their transient sessions.
        """
        if self._is_ending:
            return
        self._is_ending = True
        links = self._parts.control.links
        peers = () if links is None else links.status()
        dropped = {each.peer.node: each.unacknowledged_bytes for each in peers if each.unacknowledged_bytes}
        self._log.error(
            "the other hubs go on without this one; beginning again",
            cause=str(error),
            dropped_bytes=dropped,
        )
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
