"""Processes as a run history names them: who we are, and whether a process that it names still lives.

Knows no job. A process id alone says little: it is issued again, and means another process in another container or on another machine.
So a process is named by machine, boot, process-id space, id and start time; only who shares the first three can look.
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from iothub_tenants.accounts.job_runs import Owner

_PROC = Path("/proc")
_POLL_S = 0.05
_GONE = frozenset("ZX")  # states of a process that runs no more


def this_process() -> Owner:
    """Return who looks after the runs that this process begins."""
    pid = os.getpid()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run with a number that nobody named
        user = str(os.getuid())
    return Owner(socket.gethostname(), pid, name_of(pid) or f"{_place()}/{pid}/0", user)


def name_of(pid: int) -> str | None:
    """Return the name of a process of this machine; None: there is none of this id."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in _GONE else f"{_place()}/{pid}/{fields[19]}"


def is_here(name: str) -> bool:
    """Say whether `lives` can tell: the process was started where we are."""
    return name.rpartition("/")[0].rpartition("/")[0] == _place()


def lives(name: str) -> bool:
    """Say whether a process of this machine still runs."""
    pid = name.rpartition("/")[0].rpartition("/")[2]
    return pid.isdecimal() and name_of(int(pid)) == name


def is_gone(name: str) -> bool:
    """Say whether a process is known to run no more; one of another machine never is."""
    return is_here(name) and not lives(name)


def end_session(leader: int, grace_s: float) -> None:
    """End a process, then everything that it has started in its session; politely for `grace_s`, then not."""
    _signal([leader], signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    are_others_told = False
    try:
        while (members := _members(leader)) and time.monotonic() < deadline:
            if leader not in members and not are_others_told:
                are_others_told = True
                _signal(members, signal.SIGTERM)
            time.sleep(_POLL_S)
    finally:  # whoever presses Ctrl-C again does not want to wait
        kill_session(leader)


def kill_session(leader: int) -> None:
    """Kill what is left of a session, again until nothing is: a process may start another one while it is looked for."""
    for _ in range(20):
        members = _members(leader)
        if not members:
            return
        _signal(members, signal.SIGKILL)
        time.sleep(_POLL_S)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _members(leader: int) -> list[int]:
    return [pid for pid, session in sessions().items() if session == leader]


def sessions() -> dict[int, int]:
    """Return which session each process of this machine is in, by process id; of those that run."""
    with os.scandir(_PROC) as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    found = ((pid, _stat(pid)) for pid in pids)
    return {pid: int(fields[3]) for pid, fields in found if fields is not None and fields[0] not in _GONE}


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on: 0 state, 3 session, 19 start time. A process's own name may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _place() -> str:
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()[:64]}/{boot}/{os.readlink(_PROC / 'self/ns/pid')}"
