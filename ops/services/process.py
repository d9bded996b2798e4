"""One server process that outlives whoever started it: start, find again, signal, wait for its end.

Knows no server. A process is ours only if its command line carries our mark: a number in a file may by now be somebody else's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from ops.services.errors import ServicesError
from ops.services.server import Habits

State = Literal["down", "running", "paused"]

_HABITS = Habits()
_LOOK_S = 0.02
_LAUNCH_S = 5.0
_KILL_S = 10.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The shell ends at once and leaves the server to itself, in a session of its own: no Ctrl-C and no closed terminal reaches it.
_LAUNCH = 'out=$1; shift; "$@" >>"$out" 2>&1 </dev/null & echo $!'


class ServerProcess:
    """The process of one server, with its children; its folder holds its `pid` and what it printed (`out`)."""

    def __init__(self, name: str, folder: Path, habits: Habits = _HABITS) -> None:
        self.name = name
        self._folder = folder
        self._pid_file = folder / "pid"
        self._mark = habits.mark.format(folder=folder)
        self._stop_signal = habits.stop_signal

    @property
    def mark(self) -> str:
        """Return the argument that makes the process ours."""
        return self._mark

    @property
    def out(self) -> Path:
        return self._folder / "out"

    def pid(self) -> int | None:
        """Return the process id, None when it does not run. A file that was lost or is stale does not hide the process."""
        try:
            pid = int(self._pid_file.read_text())
        except (FileNotFoundError, ValueError):
            pid = None
        if pid is not None and self._is_ours(pid):
            return pid
        return next((other for other in _pids() if self._is_ours(other)), None)

    def state(self) -> State:
        pid = self.pid()
        if pid is None:
            return "down"
        return "paused" if _stat(pid, 0) == "T" else "running"

    def resident_bytes(self) -> int:
        """Return the resident memory, 0 when it does not run."""
        pid = self.pid()
        return 0 if pid is None else int(_stat(pid, 21) or 0) * _PAGE_BYTES

    def cpu_s(self) -> float:
        """Return the CPU time since its start, of user and system together."""
        pid = self.pid()
        if pid is None:
            return 0.0
        return (int(_stat(pid, 11) or 0) + int(_stat(pid, 12) or 0)) / os.sysconf("SC_CLK_TCK")

    def start(self, program: Sequence[str], arguments: Sequence[str]) -> None:
        """Start it with its mark between program and arguments, and remember its process id."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = ["sh", "-c", _LAUNCH, "sh", str(self.out), *program, self._mark, *arguments]
        started = subprocess.run(
            command,
            cwd=self._folder,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
        )
        half = self._pid_file.with_suffix(".half")
        half.write_bytes(started.stdout)
        half.rename(self._pid_file)
        pid = int(started.stdout)  # for a moment it is still the shell's copy, without the mark in its place
        until(lambda: self._is_ours(pid) or not Path(f"/proc/{pid}").exists(), _LAUNCH_S)

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False when there is nobody to get it."""
        pid = self.pid()
        return pid is not None and _send(pid, number)

    def pause(self) -> bool:
        """Stop it where it is, and its children: one of them may be who answers. False when it does not run."""
        return self._send_all(signal.SIGSTOP)

    def resume(self) -> bool:
        """Let it go on, and its children; False when it does not run."""
        return self._send_all(signal.SIGCONT)

    def stop(self, limit_s: float) -> bool:
        """End it in good order, or by force after `limit_s`. Returns whether the good order sufficed."""
        self.send(self._stop_signal)
        self.resume()  # a paused process would not hear of it
        if self.has_ended(limit_s):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """End it at once, as a crash would, and see it gone with its children."""
        pid = self.pid()
        family = [] if pid is None else _family(pid)
        for each in family:
            _send(each, signal.SIGKILL)
        if not until(lambda: self.pid() is None and not any(map(_is_alive, family)), _KILL_S):
            raise ServicesError(f"{self.name} (process {self.pid()}) does not end; check `dmesg` for a hanging disk")

    def has_ended(self, limit_s: float) -> bool:
        """Wait for its end, at most so long."""
        return until(lambda: self.pid() is None, limit_s)

    def _send_all(self, number: signal.Signals) -> bool:
        pid = self.pid()
        if pid is None:
            return False
        for each in _family(pid):
            _send(each, number)
        return True

    def _is_ours(self, pid: int) -> bool:
        """A zombie has no command line left, and nothing to be waited for."""
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return self._mark.encode() in arguments and not arguments[0].endswith(b"sh")


def until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Look until it holds; False when it does not within `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def is_zombie(pid: int) -> bool:
    """Tell whether a process has ended and nobody has waited for it."""
    return _stat(pid, 0) == "Z"


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _is_alive(pid: int) -> bool:
    return _stat(pid, 0) not in (None, "Z", "X")


def _family(pid: int) -> list[int]:
    """Return a process and all that descend from it, parents first."""
    children: dict[int, list[int]] = {}
    for each in _pids():
        children.setdefault(int(_stat(each, 1) or 0), []).append(each)
    found = [pid]
    for each in found:  # grows while it is walked
        found += children.get(each, [])
    return found


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _stat(pid: int, field: int) -> str | None:
    """Return a field of /proc/PID/stat, counted from the state (the program's name before it may hold anything)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[field]
