"""The process of the REST API beside a hub: started when the hub is ready, started anew when it ends, stopped with the hub.

Knows no HTTP: nothing of the API is loaded here. What that process has to say is in `api.json` of the data directory: where it listens, or why
it cannot.

Invariant: whatever becomes of that process, the hub goes on; its alarm says so.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from iothub.base import log as logging
from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir

LOOK_S = 0.5
SHORT_LIFE_S = 30.0  # who ends sooner is started later each time
LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0
_STOP_S = 3.0  # requests that are under way have so long; then it is killed

log = logging.get(__name__)


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


class ApiProcess:
    """On the reactor thread. Without a command it does nothing."""

    def __init__(
        self,
        command: Sequence[str],
        data_dir: DataDir,
        reactor: Any,
        launch: Callable[[Sequence[str]], Process] = launch,
    ) -> None:
        self._command = command
        self._data_dir = data_dir
        self._reactor = reactor
        self._launch = launch
        self._process: Process | None = None
        self._started_s = 0.0
        self._pause_s = LEAST_PAUSE_S

    def start(self) -> None:
        """Start it, and see to it from now on."""
        if not self._command:
            return
        self._started_s = self._reactor.seconds()
        try:
            self._process = self._launch(self._command)
        except OSError as error:  # such as too many processes
            self._again(f"it cannot be started: {error.strerror}")
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
        code = None if self._process is None else self._process.poll()
        if code is None:
            self._reactor.callLater(LOOK_S, self._look)
            return
        self._process = None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._again(f"its process ended with {how}; its lines in the log say more")

    def _again(self, how: str) -> None:
        noted = (self._data_dir.read_api() or {}).get("cause")
        cause = noted if isinstance(noted, str) else how
        if self._reactor.seconds() - self._started_s >= SHORT_LIFE_S:
            self._pause_s = LEAST_PAUSE_S
        log.warning("the REST API has ended, starting it again", cause=cause, restart_in_s=self._pause_s)
        with suppress(UnavailableError):  # a full disk has its own alarm
            self._data_dir.write_api({"cause": cause})
        self._reactor.callLater(self._pause_s, self.start)
        self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)
