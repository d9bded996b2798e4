"""One run of a job from its begin to its row in the history: waits for its turn, starts the process, listens, ends it in time.

Knows no job's inside. The row is the lock: it says who looks after the run, and rises as long as somebody does. Who finds a row of this machine
whose process is gone, or one of another machine that has not risen for `LEASE_S`, counts the run as failed. Clocks of machines are never compared.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import BackendError, ConflictError, InterruptedWorkError, UnavailableError
from iothub.jobs import process
from iothub.jobs.child import GRACE_S, Child
from iothub.jobs.lines import Done, Failed, Note, Said
from iothub.jobs.places import Places, RunLog, note_process
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.job_runs import DIED, Owner, Result, Run, RunningError
from iothub_tenants.accounts.store import AccountStore

BEAT_S = 5.0
LEASE_S = 60.0  # of which a beat may be late: longer than a database is busy, or a machine holds its breath
TIMED_OUT = "timeout"
LOST = "lost"
_TURN_S = 0.5
_EXIT_S = 60.0  # from the last word of a process to its end: Spark stops its Java
_SYSTEM_CLOCK = SystemClock()

Start = Callable[[Run, Path], tuple[list[str], dict[str, str]]]
"""From a run and its folder to command line and environment of its process."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things may take, in seconds, and the clock that tells."""

    wait_s: float = 0.0
    max_runtime_s: float = 6 * 3600.0
    beat_s: float = BEAT_S
    lease_s: float = LEASE_S
    grace_s: float = GRACE_S
    clock: Clock = _SYSTEM_CLOCK
    pause: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class _Outcome:
    result: Result = Result.FAILED
    kind: str = DIED
    text: str = ""
    figures: Mapping[str, object] = field(default_factory=dict)


class Runner:
    """Runs jobs for one data directory. `told` hears what a run says."""

    def __init__(self, store: AccountStore, places: Places, told: Callable[[Said], None], timing: Timing) -> None:
        self._store = store
        self._places = places
        self._told = told
        self._timing = timing
        self._owner: Owner = process.this_process()
        self._seen: dict[int, tuple[int, float]] = {}  # of runs elsewhere: the beat, and since when it is this one
        self._risen: set[int] = set()
        self._beat_at = 0.0

    def run(self, job: str, options: Mapping[str, object], start: Start) -> Run:
        """Run it and return its row, whatever came of it.

        Raises:
            RunningError: Another run is under way.
            InterruptedWorkError: Ctrl-C or a signal to stop; process and Java have ended, and the history has it.
            IotHubError: The run could not begin, or the accounts database is gone; process and Java have ended.
        """
        with _stopping_as_by_hand():
            run = self._begin(job, options)
            outcome = _Outcome(Result.INTERRUPTED, "", "interrupted before it was done; what was there before counts")
            try:
                outcome = self._do(run, start)
            except Exception as error:
                outcome = _Outcome(kind=LOST, text=str(error))
                raise
            except KeyboardInterrupt:
                raise InterruptedWorkError(
                    f"interrupted: {job} has ended, nothing of it counts; run it again when you like (run {run.id})"
                ) from None
            finally:
                self._note_end(run, outcome)
        return job_runs.show(self._store, run.id)

    def _note_end(self, run: Run, outcome: _Outcome) -> None:
        is_ours = job_runs.end(
            self._store, run.id, outcome.result, kind=outcome.kind, figures=outcome.figures, text=outcome.text
        )
        if not is_ours and outcome.result is Result.DONE:
            raise ConflictError(f"run {run.id} is done, but was taken for dead before: see `iothub job show {run.id}`")

    # --- whose turn it is

    def _begin(self, job: str, options: Mapping[str, object]) -> Run:
        clock, timing = self._timing.clock, self._timing
        began = clock.monotonic()
        is_said = False
        while True:
            try:
                return job_runs.begin(self._store, job, options, self._owner, self._is_gone)
            except RunningError as error:
                waited_s = clock.monotonic() - began
                if waited_s >= timing.wait_s and not self._is_unclear(error.run):
                    raise
                if not is_said and timing.wait_s:
                    self._told(Note(f"waiting: {error.run.who()}"))
                    is_said = True
            timing.pause(min(1.0, timing.beat_s))

    def _is_gone(self, run: Run) -> bool:
        if process.is_here(run.owner.process):
            return not process.lives(run.owner.process)
        now = self._timing.clock.monotonic()
        beat, since = self._seen.get(run.id, (run.beat, now))
        if beat != run.beat:
            self._risen.add(run.id)
            since = now
        self._seen[run.id] = (run.beat, since)
        return now - since >= self._timing.lease_s

    def _is_unclear(self, run: Run) -> bool:
        """Say whether a run elsewhere may be dead: nobody has seen it rise yet."""
        return not process.is_here(run.owner.process) and run.id not in self._risen

    # --- the run

    def _do(self, run: Run, start: Start) -> _Outcome:
        with self._places.scratch(run.id) as folder:
            log = RunLog(self._places.log_file(run.id))
            try:
                with _file_named(folder):
                    command, environment = start(run, folder)
                child = Child(command, environment, folder, log)
                try:
                    with _file_named(folder):
                        note_process(folder, child.pid)
                    return self._listen(run, child, log)
                finally:
                    child.end(self._timing.grace_s)
            finally:
                log.close()

    def _listen(self, run: Run, child: Child, log: RunLog) -> _Outcome:
        clock = self._timing.clock
        until = clock.monotonic() + self._timing.max_runtime_s
        self._beat_at = clock.monotonic()
        done: Done | None = None
        failed: Failed | None = None
        while True:
            if clock.monotonic() >= until:
                text = f"ended: it took longer than jobs.max_runtime ({self._timing.max_runtime_s:.0f} s)"
                return _Outcome(kind=TIMED_OUT, text=text)
            self._beat(run)
            try:
                said = child.said(_TURN_S)
            except TimeoutError:
                if child.is_over():
                    break
                continue
            if said is None:
                break
            done = said if isinstance(said, Done) else done
            failed = said if isinstance(said, Failed) else failed
            self._told(said)
        return _judge(done, failed, child.wait(_EXIT_S), log)

    def _beat(self, run: Run) -> None:
        """Show that we live. Raises ConflictError, BackendError: we may be taken for dead, so the run must end."""
        now = self._timing.clock.monotonic()
        late_s = now - self._beat_at
        if late_s < self._timing.beat_s:
            return
        try:
            is_ours = job_runs.beat(self._store, run.id)
        except BackendError:
            if late_s >= self._timing.lease_s / 2:
                raise
            return
        if not is_ours:
            raise ConflictError(f"run {run.id} was taken for dead by somebody else: it is ended")
        self._beat_at = now


def _judge(done: Done | None, failed: Failed | None, code: int | None, log: RunLog) -> _Outcome:
    """Say what came of a run from its last words and its exit code."""
    figures = {} if done is None else done.figures
    if failed is not None:
        return _Outcome(kind=failed.kind or DIED, text=failed.text or "it failed and did not say why", figures=figures)
    if done is not None and code == 0:
        return _Outcome(Result.DONE, "", "", figures)
    if done is not None and code is None:  # the work is done and durable; only Spark has not let go
        return _Outcome(Result.DONE, "", f"its process had to be ended, {_EXIT_S:.0f} s after its last word", figures)
    if code is None:
        how = "did not end after its last word"
    elif code < 0:
        how = f"was ended by {_signal(-code)}"
    else:
        how = f"ended with exit code {code}" + ("" if code else " without saying what it did")
    last = f"; its last line: {log.last}" if log.last else ""
    return _Outcome(text=f"its process {how}{last}", figures=figures)


@contextmanager
def _file_named(folder: Path) -> Iterator[None]:
    """A write that fails does not say of itself where: a full disk is told with the run's folder at least."""
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
    """SIGTERM, of a service manager, and SIGHUP, of a closed terminal (but for `nohup`), mean what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
