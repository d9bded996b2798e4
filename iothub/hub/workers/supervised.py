"""What a process that a supervisor starts does first, and what the two say to each other.

Knows neither hub nor stores. On descriptor `REPORT` the supervisor reads one line of JSON, that the process is ready or why it cannot start, and
before and after it a line each second: it runs. That line is empty, or says whether the process drains. On `NEWS` a worker reads how the store
process is, a line of JSON each time.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from iothub.base.errors import ConfigError, IotHubError, error_of

REPORT, NEWS = 3, 4
BEAT_S = 1.0
BEGINS_AGAIN = os.EX_TEMPFAIL
"""Exit code of a worker that the other hubs go on without: it is started again."""

DRAINING = "--draining"
"""Option of a process whose former one drained: it lets no client in."""

_NEWS_BYTES = 65536
_PR_SET_PDEATHSIG = 1


def require_supervisor() -> None:
    """Raise ConfigError unless a supervisor reads `REPORT`: for anybody else that descriptor may be any file, one of the stores among them."""
    try:
        is_read = stat.S_ISFIFO(os.fstat(REPORT).st_mode)
    except OSError:
        is_read = False
    if not is_read:
        raise ConfigError(
            "--store-process and --as-worker are for `iothub serve --workers N`, which starts these processes itself"
        )


def begin() -> None:
    """Begin a process that the supervisor reads: it ends with the supervisor, also if that has ended already."""
    end_with_parent()
    reader = select.poll()
    reader.register(REPORT, 0)
    if reader.poll(0):  # nobody reads
        os._exit(1)


def end_with_parent() -> None:
    """End with the process that has started this one, whatever ends it, and take no signal that a terminal sends to its whole group.

    SIGKILL, because a process that hangs must not keep the next start from the directory: to everybody else this is a crash, and nothing that was
    acknowledged depends on an orderly end.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


class Reporter:
    """Reports to the supervisor. If nobody reads it, the supervisor is gone, and this process ends.

    Invariant: until it is ready a thread beats, because a start may keep the main thread for long; afterwards who serves beats.
    """

    def __init__(self) -> None:
        self._reported = threading.Event()
        self._state = b"\n"  # what a beat says
        self._writes = threading.Lock()  # a long report is not one write of the pipe
        threading.Thread(target=self._beat_while_starting, name="starting", daemon=True).start()

    def ready(self) -> None:
        """From now on `beat` is called every `BEAT_S`."""
        self._write({"ready": True})
        os.set_blocking(REPORT, False)

    def beat(self) -> None:
        """Say that this process runs, and whether it drains. A supervisor that does not read is frozen itself, and reads a later beat."""
        try:
            os.write(REPORT, self._state)
        except BlockingIOError:
            return
        except OSError:
            os._exit(1)

    def drains(self, is_draining: bool) -> None:
        """Say from now on whether this process drains, so that the next one goes on with that."""
        self._state = json.dumps({"draining": is_draining}).encode() + b"\n"
        self.beat()

    def failed(self, error: IotHubError) -> bool:
        """Let the supervisor print it; False: it has heard of a start that succeeded, and prints nothing."""
        return self._write({"error": str(error), "details": list(error.details), "exit_code": error.exit_code})

    def _write(self, report: object) -> bool:
        if self._reported.is_set():
            return False
        self._reported.set()
        with self._writes:
            self._write_bytes(json.dumps(report).encode())
        return True

    def _beat_while_starting(self) -> None:
        while not self._reported.wait(BEAT_S):
            with self._writes:
                self._write_bytes(b"")

    @staticmethod
    def _write_bytes(data: bytes) -> None:
        try:
            os.write(REPORT, data + b"\n")
        except OSError:
            os._exit(1)


@dataclass(slots=True)
class Report:
    """What a process has said, as its supervisor reads it. `error`: why it does not start; None: it has said nothing of the kind."""

    is_draining: bool = False
    is_ready: bool = False
    error: IotHubError | None = None
    _rest: bytes = b""

    def received(self, data: bytes) -> bool:
        """Take what was read; say whether it is known now how the start went, and was not before."""
        was_known = self._is_start_known
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in filter(None, lines):
            with suppress(ValueError):  # what is not of this program: somebody else has written to the descriptor
                said = json.loads(line)
                if isinstance(said, dict):
                    self._take(said)
        return self._is_start_known and not was_known

    @property
    def _is_start_known(self) -> bool:
        return self.is_ready or self.error is not None

    def _take(self, said: Mapping[str, object]) -> None:
        self.is_ready |= said.get("ready") is True
        self.is_draining = said.get("draining", self.is_draining) is True
        if "error" in said:
            self.error = error_of(said.get("exit_code"), str(said["error"]), _texts(said.get("details")))


def news(text: str) -> bytes:
    """Return the line for a worker: why the store process does not work, nothing if it does."""
    return json.dumps(text).encode() + b"\n"


class NewsReader:
    """Fulfils Twisted's `IReadDescriptor`: reads what the supervisor says. On the reactor thread."""

    def __init__(self, on_store: Callable[[str], None], on_end: Callable[[NewsReader], None]) -> None:
        """`on_store`: gets each text of `news`. `on_end`: called when the supervisor has gone."""
        self._on_store = on_store
        self._on_end = on_end
        self._bytes = b""
        os.set_blocking(NEWS, False)

    def fileno(self) -> int:
        return NEWS

    def logPrefix(self) -> str:  # noqa: N802 - Twisted's name
        return "news"

    def doRead(self) -> None:  # noqa: N802 - Twisted's name
        try:
            read = os.read(NEWS, _NEWS_BYTES)
        except BlockingIOError:
            return
        if not read:
            self._on_end(self)
            return
        *lines, self._bytes = (self._bytes + read).split(b"\n")
        for line in lines:
            self._on_store(str(json.loads(line)))

    def connectionLost(self, _reason: object) -> None:  # noqa: N802 - Twisted's name
        """The reactor stops."""


def _texts(details: object) -> Sequence[str]:
    return [str(text) for text in details] if isinstance(details, list) else []
