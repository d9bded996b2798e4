"""The process of one run: started in a session of its own, heard line by line, and ended with everything that it has started.

Knows no job and no history. It ends by itself when this process does: it reads a pipe that only we hold open.
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from iothub.base.errors import UnavailableError
from iothub.jobs import process
from iothub.jobs.lines import LINE_LIMIT_BYTES, Said, read_line
from iothub.jobs.places import RunLog

GRACE_S = 15.0
_WAITING_LINES = 1000
_JOIN_S = 5.0
_LAST_WORDS_S = 1.0  # longer only somebody else holds the pipe open


class Child:
    """A running process. `end` it, whatever happens."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: RunLog) -> None:
        """Start it. Raises UnavailableError."""
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(  # noqa: S603  our own program
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise UnavailableError(f"{command[0]}: cannot be started: {error.strerror}") from None
        self._log = log
        self._said: queue.Queue[Said | None] = queue.Queue(_WAITING_LINES)
        assert self._process.stdout is not None  # noqa: S101  piped
        assert self._process.stderr is not None  # noqa: S101
        self._hearing = threading.Thread(target=self._hear, args=(self._process.stdout,), daemon=True)
        self._logging = threading.Thread(target=log.take, args=(self._process.stderr,), daemon=True)
        self._threads = (self._hearing, self._logging)
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self, timeout_s: float) -> Said | None:
        """Return the next thing that it says. None: it will say nothing more. Raises TimeoutError."""
        try:
            return self._said.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None

    def is_over(self) -> bool:
        """Say whether it has ended and left others behind, who hold its pipes open and have nothing to say. They are ended."""
        if self._process.poll() is None:
            return False
        process.kill_session(self.pid)
        self._hearing.join(_JOIN_S)
        return self._hearing.is_alive()

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit code, negative for a signal; None: it has not ended in time."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._logging.join(_LAST_WORDS_S)  # what it died of is the last thing in its log
        return code

    def end(self, grace_s: float = GRACE_S) -> None:
        """End it and all that it has started."""
        try:
            if self._process.poll() is None:
                self._reap_while_ending(grace_s)
        finally:
            process.kill_session(self.pid)
            self._process.wait()
            self._close()

    def _reap_while_ending(self, grace_s: float) -> None:
        waiter = threading.Thread(target=self._process.wait, daemon=True)
        waiter.start()
        process.end_session(self.pid, grace_s)

    def _hear(self, source: IO[bytes]) -> None:
        """Read lines to the end of the pipe; one that is too long is cut, and then is none of ours."""
        with suppress(OSError, ValueError):
            while line := source.readline(LINE_LIMIT_BYTES + 1):
                said = read_line(line)
                if said is None:
                    self._log.write(line)
                else:
                    self._said.put(said)
        self._said.put(None)

    def _close(self) -> None:
        deadline = time.monotonic() + _JOIN_S
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:
            with suppress(queue.Empty):  # whoever hears must not wait for room
                self._said.get(timeout=0.02)
        if any(thread.is_alive() for thread in self._threads):
            return  # somebody has left the session and holds a pipe open: they end with it
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
