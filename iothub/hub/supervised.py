"""What a process that a supervisor starts does first, and what it says to its supervisor: that it is ready, or why it cannot start.

Knows neither hub nor stores. The supervisor reads one line of JSON from descriptor `REPORT`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from iothub.base.errors import ConfigError, IotHubError, error_of

REPORT = 3
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
    """End with the supervisor, whatever ends it, and take no signal that a terminal sends to its whole group.

    SIGKILL, because a process that hangs must not keep the next start from the directory: to everybody else this is a crash, and nothing that was
    acknowledged depends on an orderly end.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


class Reporter:
    """One report to the supervisor. If nobody reads it, the supervisor is gone, and this process ends.

    The descriptor stays open: a hub that begins again is this process with another program, and reports again.
    """

    def __init__(self) -> None:
        self._has_reported = False

    def ready(self) -> None:
        self._write({"ready": True})

    def failed(self, error: IotHubError) -> bool:
        """Let the supervisor print it; False: it has heard of a start that succeeded, and prints nothing."""
        return self._write({"error": str(error), "details": list(error.details), "exit_code": error.exit_code})

    def _write(self, report: object) -> bool:
        if self._has_reported:
            return False
        self._has_reported = True
        try:
            os.write(REPORT, json.dumps(report).encode() + b"\n")
        except OSError:
            os._exit(1)
        return True


@dataclass(slots=True)
class Report:
    """What a process has said, as its supervisor reads it. `error`: why it does not start; None: it has said nothing of the kind."""

    is_ready: bool = False
    error: IotHubError | None = None
    _bytes: bytearray = field(default_factory=bytearray)

    def received(self, data: bytes) -> bool:
        """Take what was read; say whether the report is complete. Later reports are of a hub that begins again, and change nothing."""
        if self.is_ready:
            return False
        self._bytes += data
        if not self._bytes.endswith(b"\n"):
            return False
        try:
            said = json.loads(self._bytes)
        except ValueError:
            return False
        self.is_ready = said.get("ready") is True
        if "error" in said:
            self.error = error_of(said.get("exit_code"), str(said["error"]), _texts(said.get("details")))
        return True


def _texts(details: object) -> Sequence[str]:
    return [str(text) for text in details] if isinstance(details, list) else []
