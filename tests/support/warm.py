"""The command `iothub` without the second that its imports take: each call is a process of its own, forked from one that has loaded all of it.

Knows no command. Such a process has its own arguments, environment, directory, files and exit code; whoever tests how the program itself
starts runs the program. This module is both sides: `run` for tests, `python -m tests.support.warm SOCKET` is the process that forks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from iothub import entry

_NOT_LOADED = ("serve",)  # it would bring a reactor, which no fork survives
_START_S = 60.0
_REQUEST_BYTES = 1 << 20
_CALLERS = 64
_INPUT = 0  # of the process that forks: at its end whoever started it has gone
_READY = b"ready"


def run(
    words: Sequence[str], *, told: str | None, environment: Mapping[str, str], timeout_s: float
) -> tuple[int, str, str]:
    """Run one command line; return its exit code, and what it wrote to standard output and standard error.

    Raises:
        subprocess.TimeoutExpired: It was ended after `timeout_s`.
    """
    with (
        tempfile.TemporaryFile("w+") as taken,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        taken.write(told or "")
        taken.seek(0)
        code = _forked(words, (taken, out, err), environment, timeout_s)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def _forked(words: Sequence[str], files: Sequence[IO[str]], environment: Mapping[str, str], timeout_s: float) -> int:
    request = json.dumps({"words": list(words), "environment": dict(environment), "directory": str(Path.cwd())})
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_START_S)
        connection.connect(_house())
        socket.send_fds(connection, [request.encode()], [file.fileno() for file in files])
        pid = int(connection.recv(64))
        connection.settimeout(timeout_s)
        try:
            return int(connection.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["iothub", *words], timeout_s) from None


_starting = threading.Lock()


def _house() -> str:
    with _starting:
        return _started()


@cache
def _started() -> str:
    """Start the process that forks; it ends with this one, whose end closes its standard input."""
    folder = tempfile.TemporaryDirectory(prefix="iothub-warm-")
    path = str(Path(folder.name) / "socket")
    command = [sys.executable, "-m", "tests.support.warm", path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(len(_READY)) == _READY, "the command could not be loaded"
    process.stdout.close()

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_START_S)
        folder.cleanup()

    atexit.register(end)
    return path


# --- the process that forks


def _serve(path: str) -> None:
    """Fork for every connection, until whoever started us has gone."""
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(path)
        door.listen(_CALLERS)
        os.write(1, _READY)
        while door.fileno() in select.select([_INPUT, door.fileno()], [], [])[0]:
            connection, _ = door.accept()
            with connection:
                if os.fork() == 0:
                    door.close()
                    _attend(connection)


def _load() -> None:
    from iothub.cli.main import NOUNS

    for name, (module, _) in NOUNS.items():
        if name not in _NOT_LOADED:
            importlib.import_module(f"iothub.cli.{module}")
    assert "twisted.internet.reactor" not in sys.modules
    gc.freeze()


def _attend(connection: socket.socket) -> None:
    """Run one command line in a process of its own; tell its process id at once, and its exit code when it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(json.loads(request), files)
    for file in files:
        os.close(file)
    with contextlib.suppress(OSError):  # nobody waits for it any more
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """Be the program, to the end of the process."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv = ["iothub", *request["words"]]
    entry.main()
    raise SystemExit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
