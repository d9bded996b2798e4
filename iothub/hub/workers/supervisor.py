"""Several workers on one data directory: starts the store process and the workers, starts anew what ends, and stops them in order.

Knows no client, no store and no message. A child says over a descriptor that it is ready, or why it cannot start (`iothub.hub.workers.supervised`).
Imported when it is used only: Twisted's monitor needs the reactor to be there.

    store process -> ready -> workers, all at once -> ready: the hub is ready
    a child ends before that     the start fails with its error, said once; one that was killed is started again, and one that the others go
                                 on without
    a child ends afterwards      it is started again: at once after a long life, else later each time
    a child says nothing         it is killed, and started again once its process has ended
    SIGTERM, SIGINT              workers stop, all at once, then the store process; a second signal kills
    SIGHUP                       each worker reloads

Invariant: a child never outlives this process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.runner.procmon import LoggingProtocol, ProcessMonitor

from iothub.base import log as logging
from iothub.base.errors import IotHubError, error_of
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.config.workers import worker_name
from iothub.hub.start_times import HOW_LONG, StartTimes
from iothub.hub.workers.ended_workers import EndedWorkers, Incarnations
from iothub.hub.workers.service_manager import ServiceManager
from iothub.hub.workers.supervised import BEAT_S, BEGINS_AGAIN, DRAINING, NEWS, REPORT, Report, news
from iothub_services.metrics.exported import forget_exported
from iothub_services.store_process.connection import AWAY

STORE = "store"
SHORT_LIFE_S = 30.0  # who ends sooner is started later each time
LEAST_PAUSE_S, MOST_PAUSE_S = 0.5, 30.0
KEEPS_ENDING = 3  # ends in a row after short lives, from which on it is an error
LATE_LOOKS, LOST_LOOKS = 5, 10  # in a row, one each `BEAT_S`, without a sign of a child: the alarm, then the end
FIRST_LATE_LOOKS, FIRST_LOST_LOOKS = 30, 60  # the same before its first sign: the program is read from a disk
_KILL_AFTER_S = 5.0  # more than a hub may take to stop

Announce = Callable[[dict[str, object]], None]
"""Gets the facts of `hub.json` when all workers are ready."""


class Child(LoggingProtocol):
    """One process.

    `silent_looks`: looks in a row at which it had said nothing; `late_looks`, `lost_looks`: how many of them are too many. They are counted, and
    no time is measured: a machine that was suspended, or a supervisor that was frozen itself, has looked at nobody.
    """

    service: Supervisor

    def __init__(self, service: Supervisor, name: str, *, is_draining: bool) -> None:
        """`is_draining`: its former process did."""
        self.service = service
        self.name = name
        self.report = Report(is_draining=is_draining)
        self.silent_looks = 0
        self.late_looks, self.lost_looks = FIRST_LATE_LOOKS, FIRST_LOST_LOOKS
        self.is_late = False  # it was killed because it did not stop

    def connectionMade(self) -> None:  # noqa: N802
        """It writes its lines itself."""

    def childDataReceived(self, childFD: int, data: bytes) -> None:  # noqa: N802, N803
        if childFD != REPORT:
            return
        if self.report.received(data):
            if self.report.is_ready:
                self.service.became_ready(self)
        elif self.silent_looks >= self.late_looks:
            self.service.answers_again(self)
        self.silent_looks = 0
        self.late_looks, self.lost_looks = LATE_LOOKS, LOST_LOOKS

    def look(self) -> int:
        """Look whether it has said anything; return at how many looks in a row it had not."""
        self.silent_looks += 1
        return self.silent_looks

    def was_late(self) -> None:
        """It is killed, because it has not stopped in time."""
        self.is_late = True

    def tell(self, text: str) -> None:
        """Say to a worker how the store process is."""
        transport: IProcessTransport | None = self.transport
        if transport is not None:
            with suppress(KeyError):  # its end of the pipe is closed: it is ending
                transport.writeToChild(NEWS, news(text))

    def processEnded(self, reason: Failure) -> None:  # noqa: N802
        self.service.ended(self, reason)


class Supervisor(ProcessMonitor):
    """On the reactor thread. Invariant: before all were ready, only what was killed or begins again is started a second time."""

    threshold = SHORT_LIFE_S  # type: ignore[assignment]
    minRestartDelay = LEAST_PAUSE_S  # type: ignore[assignment]  # noqa: N815
    maxRestartDelay = MOST_PAUSE_S  # type: ignore[assignment]  # noqa: N815

    def __init__(
        self,
        settings: Config,
        data_dir: DataDir,
        reactor: Any,
        command: Sequence[str],
        announce: Announce,
        manager: ServiceManager,
        *,
        has_store: bool,
    ) -> None:
        """`command`: of a child, but for the option that says which one it is. `has_store`: a store is in files here.

        `manager`: hears of the whole; each child is supervised here.
        """
        super().__init__(reactor)
        self._main = reactor
        self.killTime = settings.node.stop_timeout_s + settings.cluster.drain_on_stop_s + _KILL_AFTER_S  # type: ignore[assignment]
        self._workers = {worker_name(settings, number): number for number in range(1, settings.node.workers + 1)}
        self._data_dir = data_dir
        self._command = command
        self._announce = announce
        self._manager = manager
        self._has_store = has_store
        self._ended_workers = EndedWorkers(settings, data_dir)
        self._short_lives: dict[str, int] = {}  # in a row
        self._killed: dict[str, int] = {}  # how often, before all were ready
        self._draining: set[str] = set()  # whose last process did when it ended
        self._is_started = False
        self._awaited: dict[str, Deferred[None]] = {}  # by name: fires when it is ready for the first time
        self._store_away = ""  # why the store process does not work, as the workers know it
        self._failure: IotHubError | None = None
        self._exit_code = 0
        self._log = logging.get(__name__)

    def run(self) -> int:
        """Start, supervise, stop; return the exit code. Raises what kept a child from starting."""
        self._main.callWhenRunning(self._begin)
        self._main.run()  # with Twisted's signal handling, which hears of children that end
        if self._failure is not None:
            raise self._failure
        return self._exit_code

    # --- start

    def _begin(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, lambda *_: self._main.callFromThread(self._reload))
        self._manager.keep_alive(self._main.callLater)
        self.startService()
        Deferred.fromCoroutine(self._start()).addErrback(self._start_failed)

    async def _start(self) -> None:
        times = StartTimes()
        times.ended("loading")
        ended = self._ended_workers.of_all()
        noted = self._note_ended(ended)
        if any(number not in self._workers.values() for number in ended):
            await noted  # nobody takes the number over: until then it looks like another hub
            times.ended("accounts")
        forget_exported(self._data_dir.run)
        self._look()
        if self._has_store:
            await self._started(STORE, "--store-process")
            times.ended("store_process")
        made = [self._started(name, "--as-worker", str(number)) for name, number in self._workers.items()]
        await DeferredList(made)
        times.ended("workers")
        self._is_started = True
        worker = DataDir.of_worker(self._data_dir.path, 1)
        try:
            self._announce(worker.read_hub() or {})
        except IotHubError as error:  # a full disk: the workers serve, and `iothub status` asks them
            self._log.warning("could not note that the hub is ready", cause=str(error))
        self._manager.ready(f"ready: {len(self._workers)} workers")
        self._log.info("ready", workers=len(self._workers))
        self._log.info(HOW_LONG, **times.fields())

    def _start_failed(self, failure: Failure) -> None:
        self._not_started(failure.value)

    def _started(self, name: str, *options: str) -> Deferred[None]:
        ready = self._awaited[name] = Deferred[None]()
        self.addProcess(name, [*self._command, *options], env=None)  # type: ignore[arg-type]  # None: this process's own
        return ready

    def _not_started(self, error: BaseException | None) -> None:
        """The first one says why; what the others say of it is not heard."""
        if self.running:
            self._failure = error if isinstance(error, IotHubError) else IotHubError(f"the start failed: {error!r}")
            self._stop()

    def startProcess(self, name: str) -> None:  # noqa: N802
        if name in self.protocols:
            return
        is_draining = name in self._draining
        child = self.protocols[name] = Child(self, name, is_draining=is_draining)
        self.timeStarted[name] = self._clock.seconds()
        arguments = [*self._processes[name].args, *([DRAINING] if is_draining else [])]
        files = {0: 0, 1: 1, 2: 2, REPORT: "r"}
        if name in self._workers:
            files[NEWS] = "w"
        self._reactor.spawnProcess(child, arguments[0], arguments, env=None, childFDs=files)  # type: ignore[arg-type]
        if self._store_away and name in self._workers:
            child.tell(self._store_away)

    # --- who is silent

    def _look(self) -> None:
        """Look who has said nothing since the last look. A stop has a limit of its own."""
        if not self.running:
            return
        self._main.callLater(BEAT_S, self._look)
        for child in list(self._children.values()):
            looks = child.look()
            if looks == child.late_looks:
                self._note_silence(child)
            elif looks == child.lost_looks:
                self._log.error("a process of this hub does not answer, killing it", name=child.name)
                self._signal(child, "KILL")

    def _note_silence(self, child: Child) -> None:
        late_s, lost_s = round(child.late_looks * BEAT_S), round(child.lost_looks * BEAT_S)
        self._log.warning(
            "a process of this hub does not answer", name=child.name, seconds=late_s, killed_after_s=lost_s
        )
        if child.name == STORE:
            self._tell_workers(
                f"{AWAY}: it has not answered for {late_s} s (frozen, or without CPU time); after {lost_s} s its supervisor kills it "
                "and starts it again"
            )

    def answers_again(self, child: Child) -> None:
        """It was silent, and was not killed for it."""
        self._log.info("a process of this hub answers again", name=child.name)
        if child.name == STORE:
            self._tell_workers("")

    def became_ready(self, child: Child) -> None:
        """It works."""
        if child.name == STORE:
            self._tell_workers("")
        ready = self._awaited.pop(child.name, None)
        if ready is not None:
            ready.callback(None)

    def _tell_workers(self, store_away: str) -> None:
        if store_away == self._store_away:
            return
        self._store_away = store_away
        for name in self._workers:
            if name in self.protocols:
                self._children[name].tell(store_away)

    # --- what ends

    def ended(self, child: Child, reason: Failure) -> None:
        """A process has ended, whatever ended it."""
        name, why = child.name, _why(child, reason)
        self._draining.discard(name)
        if child.report.is_draining:
            self._draining.add(name)
        if not self.running:
            self._note_stop(name, why, reason)
        elif self._is_started or self._may_start_again(child, reason):
            self._note_end(name, why)
        else:
            self._not_started(why)
        self._monitoredProcessExited(name, None)
        if not self.running:
            self._stop_next()

    def _may_start_again(self, child: Child, reason: Failure) -> bool:
        """Tell whether a start goes on: a kill says nothing about the next process, until it comes again and again."""
        if getattr(reason.value, "exitCode", None) == BEGINS_AGAIN:
            return True
        if getattr(reason.value, "signal", None) is None or child.report.error is not None:
            return False
        self._killed[child.name] = self._killed.get(child.name, 0) + 1
        return self._killed[child.name] < KEEPS_ENDING

    def _note_end(self, name: str, why: IotHubError) -> None:
        lived_s = self._clock.seconds() - self.timeStarted[name]
        short = self._short_lives[name] = self._short_lives.get(name, 0) + 1 if lived_s < SHORT_LIFE_S else 0
        pause_s = self.delay[name] if short else 0.0
        facts = {"name": name, "cause": str(why), "seconds": round(lived_s, 1), "restart_in_s": pause_s}
        if short >= KEEPS_ENDING:
            self._log.error("a process of this hub keeps ending", **facts)
        else:
            self._log.warning("a process of this hub has ended, starting it again", **facts)
        if name == STORE:
            when = f"in {pause_s:g} s" if pause_s else "now"
            self._tell_workers(f"{AWAY}: {why}; its supervisor starts it again {when}")
        else:
            self._note_ended(self._ended_workers.of(self._workers[name]))

    # --- stop

    def _signalled(self, number: int, _frame: object) -> None:
        """SIGTERM or SIGINT: stop cleanly; a second one ends all at once."""
        if not self.running:
            self._kill_all()
            os._exit(128 + number)
        self._main.callFromThread(self._stop)

    def _stop(self) -> None:
        if not self.running:
            return
        self._manager.stopping()
        Service.stopService(self)  # type: ignore[no-untyped-call]
        for again in self.restart.values():
            if again.active():
                again.cancel()
        for name in self._workers:
            if name in self.protocols:  # one that still starts has a row that the other hubs see: it takes it back
                self.stopProcess(name)
        self._stop_next()

    def _stop_next(self) -> None:
        """The workers need the store process to the end."""
        if not self.protocols:
            self._main.stop()
        elif list(self.protocols) == [STORE] and STORE not in self.murder:
            self.stopProcess(STORE)

    def _note_stop(self, name: str, why: IotHubError, reason: Failure) -> None:
        has_stopped = getattr(reason.value, "exitCode", 1) in (0, BEGINS_AGAIN)
        is_second_signal = getattr(reason.value, "signal", None) == signal.SIGTERM  # it was at its very end
        if self._is_started and not (has_stopped or is_second_signal):
            self._exit_code = 1
            self._log.error("a process of this hub did not stop cleanly", name=name, cause=str(why))

    def _kill_all(self) -> None:
        for child in list(self.protocols.values()):
            self._signal(child, "KILL")

    def stopProcess(self, name: str) -> None:  # noqa: N802
        """Twisted's would kill it without a word."""
        if name in self.protocols:
            child = self._children[name]
            self._signal(child, "TERM")
            self.murder[name] = self._clock.callLater(self.killTime, self._kill_late, child)

    def _kill_late(self, child: Child) -> None:
        child.was_late()
        self._log.error("a process of this hub does not stop, killing it", name=child.name, seconds=self.killTime)
        self._signal(child, "KILL")

    # --- reload

    def _reload(self) -> None:
        """Have each worker reload; what one of them refuses is in its lines, and nobody waits for that here."""
        if self._is_started and self.running:
            self._manager.reloading()
            self._manager.ready(f"ready: {len(self._workers)} workers")
        for name in self._workers:
            if name in self.protocols:
                self._signal(self.protocols[name], "HUP")

    @staticmethod
    def _signal(child: LoggingProtocol, name: str) -> None:
        transport: IProcessTransport | None = child.transport
        if transport is not None:
            try:
                transport.signalProcess(name)
            except ProcessExitedAlready:
                return

    # --- private

    @property
    def _children(self) -> dict[str, Child]:
        """Those whose process has not ended."""
        return cast("dict[str, Child]", self.protocols)

    def _in_thread(self, work: Callable[[], None]) -> Deferred[None]:
        return deferToThreadPool(self._main, self._main.getThreadPool(), work)

    def _note_ended(self, incarnations: Incarnations) -> Deferred[None]:
        """Whoever has a successor need not wait for it: accounts that do not answer would hold up the start."""
        if not incarnations:
            return succeed(None)
        return self._in_thread(lambda: self._ended_workers.note(incarnations)).addErrback(self._defect)

    def _defect(self, failure: Failure) -> None:
        self._log.error("defect in noting that a worker has ended", exc_info=failure.value)


def _why(child: Child, reason: Failure) -> IotHubError:
    """Return what a process said before it ended, else how it ended."""
    if child.report.error is not None:
        return child.report.error
    if child.is_late:
        return IotHubError(
            f"the process {child.name} did not stop within {child.service.killTime:g} s and was killed, as in a crash: nothing acknowledged is lost; "
            "its last lines in the log say what it did, mostly it waited for a disk or for a database that another process has locked"
        )
    if child.silent_looks >= child.lost_looks:
        return IotHubError(
            f"the process {child.name} did not answer for {child.lost_looks * BEAT_S:g} s and was killed"
        )
    number, code = getattr(reason.value, "signal", None), getattr(reason.value, "exitCode", None)
    if code == BEGINS_AGAIN:
        return IotHubError(f"the other hubs went on without {child.name}; its lines in the log say why")
    how = f"signal {signal.Signals(number).name}" if number else f"exit code {code}"
    return error_of(code, f"the process {child.name} ended: {how}; its lines in the log say more")
