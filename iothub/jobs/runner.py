"""One run of a job from its begin to its row in the history: waits for the lease, starts the process, reads its reports, ends it in time.

Knows no job. A heartbeat renews the lease (`iothub_tenants.accounts.job_runs`); if that fails, the process is ended. With each renewal the process
hears until when it may go on; if this one stands still, it ends itself before the lease expires and another run may begin.
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import BackendError, ConflictError, InterruptedWorkError, UnavailableError
from iothub.jobs.child import GRACE_S, Child, boot_s
from iothub.jobs.lines import Done, Failed, Note, Report
from iothub.jobs.places import Places, RunLog
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.job_runs import DIED, LEASE_S, Owner, Result, Run, RunningError
from iothub_tenants.accounts.store import AccountStore

HEARTBEAT_S = 5.0
LIFELINE_S = 45.0  # less than `LEASE_S` by the time in which a process and its Java are killed
TIMED_OUT = "timeout"
LOST = "lost"
_TURN_S = 0.5
_EXIT_S = 60.0  # from the last word of a process to its end: Spark stops its Java
_SYSTEM_CLOCK = SystemClock()

Start = Callable[[Run, Path], tuple[list[str], dict[str, str]]]
"""Returns command line and environment of the process, from a run and its folder."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Time limits in seconds, and the clocks. `lifeline_s`: how long the process goes on after the last renewal; `boot_s`: its clock."""

    wait_s: float = 0.0
    max_runtime_s: float = 6 * 3600.0
    heartbeat_s: float = HEARTBEAT_S
    lifeline_s: float = LIFELINE_S
    grace_s: float = GRACE_S
    clock: Clock = _SYSTEM_CLOCK
    pause: Callable[[float], None] = time.sleep
    boot_s: Callable[[], float] = boot_s


@dataclass(slots=True)
class _Outcome:
    result: Result = Result.FAILED
    kind: str = DIED
    text: str = ""
    figures: Mapping[str, object] = field(default_factory=dict)


class Runner:
    """Runs jobs for one data directory. `on_report` is called with each report of a run."""

    def __init__(
        self, store: AccountStore, places: Places, on_report: Callable[[Report], None], timing: Timing
    ) -> None:
        self._store = store
        self._places = places
        self._on_report = on_report
        self._timing = timing
        self._renewed_at = 0.0
        self._child_until_s = 0.0

    def run(self, job: str, options: Mapping[str, object], start: Start) -> Run:
        """Run the job and return the run's row, whatever its result.

        Raises:
            RunningError: Another run is active.
            InterruptedWorkError: Ctrl-C or a signal to stop; process and Java have ended, and the history has it.
            IotHubError: The run could not begin, or the accounts database does not answer; process and Java have ended.
        """
        with _stopping_as_by_hand():
            run = self._begin(job, options)
            outcome = _Outcome(Result.INTERRUPTED, "", "interrupted; the results of earlier runs stay")
            try:
                outcome = self._do(run, start)
            except Exception as error:
                outcome = _Outcome(kind=LOST, text=str(error))
                raise
            except KeyboardInterrupt:
                raise InterruptedWorkError(
                    f"interrupted: {job} was stopped, its unfinished work is discarded; run it again when you like (run {run.id})"
                ) from None
            finally:
                self._note_end(run, outcome)
        return job_runs.show(self._store, run.id)

    def _begin(self, job: str, options: Mapping[str, object]) -> Run:
        """Wait for the lease, up to the requested time. Raises RunningError."""
        clock, owner = self._timing.clock, _this_process()
        until = clock.monotonic() + self._timing.wait_s
        is_said = False
        while True:
            self._note_renewal()
            try:
                return job_runs.begin(self._store, job, options, owner)
            except RunningError as error:
                if clock.monotonic() >= until:
                    raise
                if not is_said:
                    self._on_report(Note(f"waiting: {error.run.who()}"))
                    is_said = True
            self._timing.pause(1.0)

    def _note_end(self, run: Run, outcome: _Outcome) -> None:
        is_noted = job_runs.end(
            self._store, run.id, outcome.result, kind=outcome.kind, figures=outcome.figures, text=outcome.text
        )
        if not is_noted and outcome.result is Result.DONE:
            raise ConflictError(f"run {run.id} is done, but its lease had expired: see `iothub job show {run.id}`")

    def _do(self, run: Run, start: Start) -> _Outcome:
        with self._places.scratch(run.id) as folder:
            log = RunLog(self._places.log_file(run.id))
            try:
                with _file_named(folder):
                    command, environment = start(run, folder)
                self._renew(run)
                child = Child(command, environment, folder, log, self._child_until_s)
                try:
                    return self._listen(run, child, log)
                finally:
                    child.end(self._timing.grace_s)
            finally:
                log.close()

    def _listen(self, run: Run, child: Child, log: RunLog) -> _Outcome:
        clock = self._timing.clock
        until = clock.monotonic() + self._timing.max_runtime_s
        last_report: Done | Failed | None = None
        figures: Mapping[str, object] = {}
        while not child.is_over and clock.monotonic() < until:
            if self._renew(run):
                child.keep_until(self._child_until_s)
            for report in child.read(_TURN_S):
                if isinstance(report, Done):
                    figures = report.figures
                if isinstance(report, Done | Failed):
                    last_report = report
                    until = min(until, clock.monotonic() + _EXIT_S)
                self._on_report(report)
        return self._judge(child.code, last_report, figures, log)

    def _note_renewal(self) -> None:
        """Note a renewal that is about to be asked for. Before it: nobody knows how long the answer takes, and the lease counts from the question."""
        self._renewed_at = self._timing.clock.monotonic()
        self._child_until_s = self._timing.boot_s() + self._timing.lifeline_s

    def _renew(self, run: Run) -> bool:
        """Write a heartbeat when it is due, and return whether it was.

        Raises ConflictError, BackendError: another run may take the lease, so this one must end.
        """
        before = self._renewed_at, self._child_until_s
        late_s = self._timing.clock.monotonic() - self._renewed_at
        if late_s < self._timing.heartbeat_s:
            return False
        self._note_renewal()
        try:
            is_ours = job_runs.renew(self._store, run.id)
        except BackendError:
            if late_s >= LEASE_S / 2:
                raise
            self._renewed_at, self._child_until_s = before
            return False
        if not is_ours:
            raise ConflictError(
                f"run {run.id} is stopped: it lost its lease, because it wrote no heartbeat for {LEASE_S:.0f} s; run the job again"
            )
        return True

    def _judge(
        self, code: int | None, last_report: Done | Failed | None, figures: Mapping[str, object], log: RunLog
    ) -> _Outcome:
        """Return the outcome: the exit code decides, the last report says why."""
        if isinstance(last_report, Failed):
            return _Outcome(
                kind=last_report.kind or DIED,
                text=last_report.text or "the job failed without a reason; see its log",
                figures=figures,
            )
        if code == 0:
            return _Outcome(Result.DONE, "", "", figures)
        if code is None and last_report is not None:  # the work is done and durable; only Spark has not exited
            return _Outcome(
                Result.DONE, "", f"done, but its process did not exit and was killed after {_EXIT_S:.0f} s", figures
            )
        if code is None:
            text = f"stopped, because it took longer than jobs.max_runtime ({self._timing.max_runtime_s:.0f} s); raise that setting if it needs more"
            return _Outcome(kind=TIMED_OUT, text=text)
        how = f"was killed by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
        last = f"; last line of its log: {log.last}" if log.last else ""
        return _Outcome(text=f"its process {how}{last}", figures=figures)


def _this_process() -> Owner:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run with a number that nobody named
        user = str(os.getuid())
    return Owner(socket.gethostname(), os.getpid(), user)


@contextmanager
def _file_named(folder: Path) -> Iterator[None]:
    """Name the run's folder in an error that has no file name, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"{error.filename or folder}: cannot be written: {error.strerror}") from None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def _stopping_as_by_hand() -> Iterator[None]:
    """Treat SIGTERM (a service manager) and SIGHUP (a closed terminal, unless `nohup` ignores it) like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
