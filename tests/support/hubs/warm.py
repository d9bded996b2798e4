"""The command `iothub` without the second that its imports take: each call is a process of its own, forked from one that has loaded all of it.

Knows no command, but that `serve` needs other modules than the rest and runs until it is told to stop. Such a process has its own arguments,
environment, directory, files and exit code; whoever tests how the program itself starts runs the program. This module is both sides: `run`,
`launch` and `put_program` for tests, `python -m tests.support.hubs.warm SOCKET commands|hub` is the process that forks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import shlex
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

from iothub.cli import entry

_SERVE = "serve"
_HUB_MODULES = (
    "iothub.cli.serve",
    "iothub.cli.version",
    "iothub.hub.hub_process",
    "iothub.hub.serve",
    "iothub.hub.twisted_log",
    "iothub_services.events.kafka.log",
    "iothub_services.queues.hbase.store",
    "iothub_services.retained.hbase.store",
    "iothub_services.state.hbase.checkpoints",
    "iothub_services.state.hbase.store",
)
_FROM_THE_START = (
    "PYTHON",
    "LD_",
    "IOTHUB_PURE_PYTHON",
    "IOTHUB_HOOKS",
)  # what an interpreter and the twins are told before they load
_START_S = 300.0
_REQUEST_BYTES = 1 << 20
_CALLERS = 64
_INPUT = 0  # of the process that forks: at its end whoever started it has gone
_PROGRAM = """#!/bin/sh
case " $* " in *" serve "*) exec {program} "$@";; esac
exec {python} -IS {asks} {socket} "$@"
"""
_ASKS = """import json, os, socket, sys
request = json.dumps({"words": sys.argv[2:], "environment": dict(os.environ), "directory": os.getcwd()})
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [request.encode()], [0, 1, 2])
    connection.recv(64)
    code = int(connection.recv(64))
sys.exit(code if code >= 0 else 128 - code)
"""
_READY = b"ready"


def run(
    words: Sequence[str], *, stdin: str | None, environment: Mapping[str, str], timeout_s: float
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
        taken.write(stdin or "")
        taken.seek(0)
        code = _forked(words, (taken, out, err), environment, timeout_s)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def launch(words: Sequence[str], *, log: IO[bytes], environment: Mapping[str, str]) -> Launched:
    """Start one command line that ends when it is told to; what it writes goes to `log`."""
    with Path(os.devnull).open("rb") as nothing:
        return Launched(words, *_begun("hub", words, (nothing, log, log), environment))


def put_program(folder: Path, program: Path) -> None:
    """Write a command `iothub` for a shell into a folder: one that is forked, but `serve`, which starts the program."""
    asks, command = folder / "asks.py", folder / "iothub"
    asks.write_text(_ASKS)
    places = {"program": program, "python": sys.executable, "asks": asks, "socket": _harness("commands")}
    command.write_text(_PROGRAM.format(**{name: shlex.quote(str(place)) for name, place in places.items()}))
    command.chmod(0o755)


def is_like_ours(environment: Mapping[str, str]) -> bool:
    """Would the program, started with this environment, have loaded what this process's children load?"""
    names = {name for name in (*environment, *os.environ) if name.startswith(_FROM_THE_START)}
    return all(environment.get(name) == os.environ.get(name) for name in names)


class Launched:
    """What tests do with a `subprocess.Popen`, for a process that somebody else has started and waits for."""

    def __init__(self, words: Sequence[str], connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._words = words
        self._connection = connection

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; a signal's number, negative, if one has ended it."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(["iothub", *self._words], timeout or 0.0)
            self.returncode = int(self._connection.recv(64))
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nobody else's process can have the number while nobody has heard of the end."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Leave it no time for anything."""
        self.send_signal(signal.SIGKILL)


def _forked(words: Sequence[str], files: Sequence[IO[str]], environment: Mapping[str, str], timeout_s: float) -> int:
    connection, pid = _begun("hub" if _SERVE in words else "commands", words, files, environment)
    with connection:
        connection.settimeout(timeout_s)
        try:
            return int(connection.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["iothub", *words], timeout_s) from None


def _begun(
    kind: str, words: Sequence[str], files: Sequence[IO[str] | IO[bytes]], environment: Mapping[str, str]
) -> tuple[socket.socket, int]:
    """Return the connection on which the exit code will come, and the process id."""
    request = json.dumps({"words": list(words), "environment": dict(environment), "directory": str(Path.cwd())})
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_START_S)
        connection.connect(_harness(kind))
        socket.send_fds(connection, [request.encode()], [file.fileno() for file in files])
        return connection, int(connection.recv(64))
    except BaseException:
        connection.close()
        raise


_starting = threading.Lock()


def _harness(kind: str) -> str:
    with _starting:
        return _started(kind)


@cache
def _started(kind: str) -> str:
    """Start the process that forks; it ends with this one, whose end closes its standard input."""
    folder = tempfile.TemporaryDirectory(prefix="iothub-warm-")
    path = str(Path(folder.name) / "socket")
    command = [sys.executable, "-m", "tests.support.hubs.warm", path, kind]
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


def _serve(path: str, kind: str) -> None:
    """Fork for every connection, until whoever started us has gone."""
    _load(kind)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(_CALLERS)
        os.write(1, _READY)
        while listening.fileno() in select.select([_INPUT, listening.fileno()], [], [])[0]:
            connection, _ = listening.accept()
            with connection:
                if os.fork() == 0:
                    listening.close()
                    _attend(connection)


def _load(kind: str) -> None:
    from iothub.cli.main import NOUNS

    commands = tuple(f"iothub.cli.{module}" for name, (module, _) in NOUNS.items() if name != _SERVE)
    for module in _HUB_MODULES if kind == "hub" else commands:
        importlib.import_module(module)
    assert "twisted.internet.reactor" not in sys.modules, "a reactor survives no fork"
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread survives no fork"
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
    # what a hub that begins again runs
    sys.orig_argv = [sys.executable, "-c", "from iothub.cli.entry import main; main()", *request["words"]]
    entry.main()
    raise SystemExit(0)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
