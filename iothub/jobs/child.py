"""The process of one run: started in its own process group, read line by line, and ended with its group.

Knows no job and no history. The child's standard input is its lifeline (`iothub_spark.lifeline`): if this process is killed, the child sees the end
of it and exits; if this process stands still, the child exits when the time has passed that was last written there (`keep_until`). Spark's Java
exits with the Python that started it, and Spark's Python workers exit with their Java.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from iothub.base.errors import UnavailableError
from iothub.jobs.lines import LINE_LIMIT_BYTES, Report, read_line
from iothub.jobs.places import RunLog

GRACE_S = 15.0
_READ_BYTES = 64 << 10
_POLL_S = 0.05
_KILLS = 20


def boot_s() -> float:
    """Return seconds since the machine was started, those in which it was suspended included, as the child counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Child:
    """A running process. `end` it, whatever happens."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: RunLog, until_s: float
    ) -> None:
        """Start it. Raises UnavailableError. `until_s`: as `keep_until` takes it; the child has it before its first step."""
        pipe = subprocess.PIPE
        lifeline, writer = os.pipe()
        os.set_blocking(writer, False)  # a child that does not read must not stop its parent
        self._lifeline = os.fdopen(writer, "wb", buffering=0)
        self.keep_until(until_s)
        try:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                command,
                stdin=lifeline,
                stdout=pipe,
                stderr=pipe,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            self._lifeline.close()
            raise UnavailableError(f"{command[0]}: cannot be started: {error.strerror}") from None
        finally:
            os.close(lifeline)
        self._log = log
        self._begun = b""  # a line of standard output that is not whole yet
        self._selector = selectors.DefaultSelector()
        for source in (self._process.stdout, self._process.stderr):
            assert source is not None  # noqa: S101  piped
            self._selector.register(source, selectors.EVENT_READ, data=source)
        self.is_over = False  # it has ended, and all its output was read

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None: it has not ended."""
        return self._process.poll()

    def keep_until(self, until_s: float) -> None:
        """Let it go on until then, in seconds of `boot_s`; it ends itself when it has heard of no later time by then."""
        with suppress(OSError):  # it has ended
            self._lifeline.write(b"%d\n" % int(until_s * 1000))

    def read(self, timeout_s: float) -> list[Report]:
        """Wait up to `timeout_s` for output and return its reports."""
        has_ended = self.code is not None  # asked first: what it wrote before its end is read below
        ready = self._ready(0.0 if has_ended else timeout_s)
        self.is_over = has_ended and not ready  # its Java may hold the pipes open a little longer
        return [report for pipe in ready for report in self._read(pipe)]

    def end(self, grace_s: float = GRACE_S) -> None:
        """End it and its process group: with SIGTERM, after `grace_s` with SIGKILL."""
        deadline = time.monotonic() + grace_s
        try:
            self._signal(signal.SIGTERM)
            # Its Java may need a moment longer, and holds the pipes open as long.
            while self._selector.get_map() and time.monotonic() < deadline:
                for pipe in self._ready(_POLL_S):
                    self._read(pipe)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, deadline - time.monotonic()))
        finally:  # also when Ctrl-C is pressed again
            self._kill()
            self._selector.close()
            for each in (self._lifeline, self._process.stdout, self._process.stderr):
                if each is not None:
                    each.close()

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; False: the group is gone."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _kill(self) -> None:
        """Kill the rest of the group. A zombie that nobody reaps, as in some containers, is waited for a second at most."""
        for _ in range(_KILLS):
            is_left = self._signal(signal.SIGKILL)
            self._process.wait()
            if not is_left:
                return
            time.sleep(_POLL_S)

    def _ready(self, timeout_s: float) -> list[IO[bytes]]:
        return [key.data for key, _ in self._selector.select(timeout_s)]

    def _read(self, pipe: IO[bytes]) -> list[Report]:
        octets = os.read(pipe.fileno(), _READ_BYTES)
        if not octets:
            self._selector.unregister(pipe)
        if pipe is self._process.stdout:
            return self._reports(octets)
        self._log.write(octets)
        return []

    def _reports(self, octets: bytes) -> list[Report]:
        """Return the reports of all complete lines; other lines, and those that are too long, go to the log."""
        *lines, self._begun = (self._begun + octets).split(b"\n")
        if not octets or len(self._begun) > LINE_LIMIT_BYTES:
            lines.append(self._begun)
            self._begun = b""
        reports = []
        for line in lines:
            found = read_line(line)
            if found is not None:
                reports.append(found)
            elif line:
                self._log.write(line + b"\n")
        return reports
