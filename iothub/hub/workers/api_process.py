"""The process of the REST API beside a hub: started when the hub is ready, started anew when it ends or hangs, stopped with the hub.

Knows no HTTP: nothing of the API is loaded here. What that process has to say is in `api.json` of the data directory: where it listens, or why
it cannot. How often it was started again, for metric and alarm, is in `api-restarts.json`, which it does not write.

Invariant: whatever becomes of that process, the hub goes on; its alarm says so.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from iothub.base import log as logging
from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir
from iothub.hub import api_probe

LOOK_S = 0.5
SHORT_LIFE_S = 30.0  # who ends sooner is started later each time
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0
ENDED, SILENT = "ended", "silent"  # why it was started again: the label of the metric
PROBE_S = 10.0  # from one probe to the next
MISSES = 3  # probes without an answer, after which it is killed and started again
_STOP_S = 3.0  # requests that are under way have so long; then it is killed

log = logging.get(__name__)


Probe = Callable[[Any, str, Callable[[bool], None]], None]


class Process(Protocol):
    """As `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


def launch(command: Sequence[str]) -> Process:
    """Start it in a group of its own: Ctrl-C of a terminal is for the hub, which then stops it.

    On the main thread: it ends with the thread that has started it.
    """
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)  # noqa: S603  our own program


def restarts(data_dir: DataDir) -> Mapping[str, int]:
    """Return how often the process was started again, by reason; of several workers the first one says so."""
    found = data_dir.read_api_restarts().get("restarts") if data_dir.worker <= 1 else None
    return found if isinstance(found, dict) else {}


class ApiProcess:
    """On the reactor thread. Without a command it does nothing."""

    def __init__(
        self,
        command: Sequence[str],
        data_dir: DataDir,
        reactor: Any,
        launch: Callable[[Sequence[str]], Process] = launch,
        probe: Probe = api_probe.probe,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._command = command
        self._data_dir = data_dir
        self._reactor = reactor
        self._launch = launch
        self._probe = probe
        self._wall = wall
        self._process: Process | None = None
        self._started_s = 0.0
        self._pause_s = LEAST_PAUSE_S
        self._probe_at_s = 0.0
        self._misses = 0
        self._is_killed = False  # for it did not answer
        self._restarts = {ENDED: 0, SILENT: 0}
        self._silent_at: float | None = None

    def start(self) -> None:
        """Start it, and see to it from now on."""
        if not self._command:
            return
        self._started_s = self._reactor.seconds()
        self._misses, self._is_killed = 0, False
        self._probe_at_s = self._started_s + PROBE_S
        try:
            self._process = self._launch(self._command)
        except OSError as error:  # such as too many processes
            self._again(f"it cannot be started: {error.strerror}", ENDED)
            return
        self._reactor.callLater(LOOK_S, self._look)

    def end(self) -> None:
        """Stop it; the reactor has stopped."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._data_dir.remove_api()

    def _look(self) -> None:
        """Invariant: nothing waits for the process, not even for its end: a disk that hangs may keep it."""
        process = self._process
        code = None if process is None else process.poll()
        if process is None or code is None:
            if process is not None and self._reactor.seconds() >= self._probe_at_s:
                self._ask(process)
            self._reactor.callLater(LOOK_S, self._look)
            return
        self._process = None
        if self._is_killed:
            self._again(f"it did not answer {MISSES} probes, {PROBE_S:g} s apart, and was killed", SILENT)
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._again(f"its process ended with {how}; its lines in the log say more", ENDED)

    def _ask(self, process: Process) -> None:
        """Probe it, if it says where it listens; one that still starts, or cannot, says so or ends."""
        self._probe_at_s = self._reactor.seconds() + PROBE_S
        note = self._data_dir.read_api() or {}
        address = note.get("address")
        if not isinstance(address, str) or "cause" in note:
            return

        def on_answer(is_alive: bool) -> None:
            if process is not self._process or self._is_killed:
                return
            self._misses = 0 if is_alive else self._misses + 1
            if self._misses >= MISSES:
                self._is_killed, self._silent_at = True, self._wall()
                process.kill()
            elif not is_alive:
                log.warning("the REST API does not answer", address=address, misses=self._misses)

        self._probe(self._reactor, address, on_answer)

    def _again(self, how: str, reason: str) -> None:
        noted = (self._data_dir.read_api() or {}).get("cause")
        cause = noted if isinstance(noted, str) else how
        if self._reactor.seconds() - self._started_s >= SHORT_LIFE_S:
            self._pause_s = LEAST_PAUSE_S
        log.warning("the REST API has ended, starting it again", cause=cause, restart_in_s=self._pause_s)
        self._restarts[reason] += 1
        with suppress(UnavailableError):  # a full disk has its own alarm
            self._data_dir.write_api({"cause": cause})
            self._data_dir.write_api_restarts({"restarts": self._restarts, "silent_at": self._silent_at})
        self._reactor.callLater(self._pause_s, self.start)
        self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)
