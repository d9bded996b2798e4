"""All servers of one folder: up, down, killed, paused, resumed, restarted; each change by one caller at a time.

Knows no server's inside: `servers` describes them, `process` holds them. Tests use it as people do, through the command line's verbs.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from ops.services import admin_socket
from ops.services.errors import ServicesError
from ops.services.hub_settings import write_hub_settings
from ops.services.places import HOST, Places, Ports, places_here, ports_here
from ops.services.probes import is_free
from ops.services.process import ServerProcess, State, until
from ops.services.server import Server
from ops.services.servers import ALWAYS, NAMES, ON_DEMAND, describe, habits_of, ports_of, version_of
from ops.services.tools import Say, Tools, find_tools

START_LIMIT_S = 180.0
HUNG_S = 60.0  # a server that ran before and does not answer for so long does nothing any more
STOP_LIMIT_S = 30.0
_LOCK_LIMIT_S = 900.0
_PROGRESS_S = 5.0
_LOOK_S = 0.1
_PORT_LIMIT_S = 3.0  # the kernel closes the sockets of a killed process a moment after its end
_LOG_LINES = 15
_LOG_TAIL_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class Report:
    """One server as it is now."""

    name: str
    state: State
    pid: int | None
    resident_bytes: int
    cpu_s: float


class Services:
    """The real servers of one folder.

    Args:
        places: Where they lie; `.services` of the checkout by default, or IOTHUB_SERVICES_DIR.
        ports: Where they listen; those of the last start by default, or shifted by IOTHUB_SERVICES_SHIFT.
        say: Gets a line for everything that takes a while.
        within: Server -> the words before its command line that put it inside another program, such as strace.
        on_hung: Gets the reason when `up` has to kill a server that ran and did not answer; without it, such a server is only waited for.
    """

    def __init__(
        self,
        places: Places | None = None,
        ports: Ports | None = None,
        say: Say = lambda line: None,
        within: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        on_hung: Say | None = None,
    ) -> None:
        self.places = places or places_here()
        self.ports = ports or ports_here(self.places)
        self._say = say
        self._within = within
        self._on_hung = on_hung

    # --- for everybody

    def up(self, *names: str) -> None:
        """Start what does not run (by default all but the second gateway), wait until each answers, write the hub's settings.

        A server that runs is left alone; one that is paused goes on; one that has died, or runs with other settings or
        another build of our jar than the sources have, is started anew on its data.

        Raises:
            ServicesError: Not possible, with the reason and the last lines of the log.
        """
        with self._alone():
            for name in names or ALWAYS:  # before minutes go into fetching
                if self._process(name).state() == "down":
                    self._require_free(name, ports_of(name, self.ports))
            servers = [self._describe(name) for name in names or ALWAYS]
            self.places.shift_file.write_text(str(self.ports.shift))
            ran = [server.name for server in servers if not self._start(server)]
            for server in servers:
                self._see_answering(server, has_run=server.name in ran)
            write_hub_settings(self.places, self.ports)

    def fetch(self) -> None:
        """See to everything that a start needs: packages, JDK, Maven, libraries, our jar. Starts nothing. Raises ServicesError."""
        with self._alone():
            for name in ALWAYS:
                self._describe(name)

    def down(self, *names: str) -> None:
        """Stop in good order, the ones that others use last."""
        with self._alone():
            for name in names or (*ON_DEMAND, *reversed(ALWAYS)):
                self._stop(name)

    def restart(self, *names: str) -> None:
        """Stop in good order, start again, wait until each answers."""
        self.down(*(names or ALWAYS))
        self.up(*names)

    def wipe(self) -> None:
        """Stop all and remove their data; the fetched libraries stay."""
        self.down()
        with self._alone():
            for name in NAMES:
                shutil.rmtree(self.places.of(name), ignore_errors=True)

    # --- for tests of faults

    def kill(self, name: str) -> None:
        """End a server as a crash would (SIGKILL), and see it gone."""
        self._process(name).kill()

    def pause(self, name: str) -> None:
        """Let a server hold its breath (SIGSTOP): connections stay open and nothing answers."""
        process = self._process(name)
        if not process.pause():
            raise ServicesError(f"{name} cannot be paused: it does not run")
        until(lambda: process.state() == "paused", STOP_LIMIT_S)

    def resume(self, name: str) -> None:
        """Let a paused server go on (SIGCONT)."""
        if not self._process(name).resume():
            raise ServicesError(f"{name} cannot be resumed: it does not run")

    def java(self, name: str, *main: str, is_apart: bool = False) -> int:
        """Run one of a server's own tools on its settings, with our input and output; returns its exit code.

        Our own programs run inside HBase's JVM while there is one, unless `is_apart` wants a JVM for this alone.
        """
        server = self._describe(name)
        if not server.tool:
            raise ServicesError(f"{name} is not written in Java; its own programs are on the PATH")
        folder = self.places.of(name)
        if not (folder / "fingerprint").exists():
            raise ServicesError(f"{name} has never been started here; start it first: make services")
        if name == "hbase" and main and main[0] in admin_socket.PROGRAMS and not is_apart:
            done = admin_socket.run_inside(folder, main, _input() if main[0] == admin_socket.READING else b"")
            if done is not None:
                _write(sys.stdout, done.out)
                _write(sys.stderr, done.err)
                return done.code
        beside = ("-Xmx256m", f"-Diothub.log={folder / 'tool.txt'}")  # the last of two wins
        return subprocess.run([*server.tool, *beside, *main], cwd=folder, check=False).returncode

    def reports(self) -> list[Report]:
        processes = [self._process(name) for name in NAMES]
        return [Report(each.name, each.state(), each.pid(), each.resident_bytes(), each.cpu_s()) for each in processes]

    def addresses(self) -> list[tuple[str, str]]:
        """Return what listens where, in which version, for people; the second gateway unless it is down."""
        ports = self.ports
        second = [] if self._process("gateway").state() == "down" else [("HBase's second gateway", ports.second_thrift)]
        listening = (
            (f"Kafka {version_of('kafka')}", ports.kafka),
            (f"HBase {version_of('hbase')}, Thrift", ports.thrift),
            *second,
            ("ZooKeeper", ports.zookeeper),
            (f"Redis {version_of('redis')}", ports.redis),
            (f"MariaDB {version_of('mariadb')}", ports.mariadb),
            (f"PostgreSQL {version_of('postgresql')}", ports.postgresql),
        )
        return [(what, f"{HOST}:{port}") for what, port in listening]

    # --- inside

    def _process(self, name: str) -> ServerProcess:
        if name not in NAMES:
            raise ServicesError(f"there is no server {name!r}; expected one of {', '.join(NAMES)}")
        return ServerProcess(name, self.places.of(name), habits_of(name))

    def _describe(self, name: str) -> Server:
        server = describe(name, self.places, self.ports, self._tools, self._say)
        return replace(server, command=(*self._within.get(name, ()), *server.command))

    def _tools(self) -> Tools:
        return find_tools(self._say)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder's lock. It ends with the process that holds it, so it cannot be left behind."""
        self.places.folder.mkdir(parents=True, exist_ok=True)
        with self.places.lock.open("a") as lock:
            if not _locked(lock.fileno()):
                self._say("another process is starting or stopping these servers; waiting ...")
                if not until(lambda: _locked(lock.fileno()), _LOCK_LIMIT_S):
                    raise ServicesError(
                        f"{self.places.lock} was held by another program for {_LOCK_LIMIT_S:.0f} s; see `fuser {self.places.lock}`"
                    )
            yield

    def _start(self, server: Server) -> bool:
        """Start it if it does not run as it should. Returns whether that was needed."""
        process = self._process(server.name)
        started = _StartedWith(self.places.of(server.name))
        state = process.state()
        if state != "down" and started.fingerprint() == server.fingerprint():
            if state == "paused":
                self._say(f"{server.name} was paused; resuming it")
                process.resume()
            return False
        if state != "down":
            self._say(f"{server.name} runs with old settings or an old jar; restarting it")
            self._stop(server.name)
        self._require_free(server.name, server.ports)
        started.write(server)
        server.prepare()
        self._say(f"starting {server.name} ...")
        process.start(server.command, server.arguments)
        return True

    def _require_free(self, name: str, ports: Sequence[int]) -> None:
        if until(lambda: all(map(is_free, ports)), _PORT_LIMIT_S):
            return
        taken = ", ".join(str(port) for port in ports if not is_free(port))
        raise ServicesError(
            f"{name} needs port {taken} of {HOST}, which another program uses; "
            f"end that program, or choose other ports: make services SHIFT={self.ports.shift + 100}"
        )

    def _see_answering(self, server: Server, *, has_run: bool) -> None:
        """Wait for its answer; one that ran before and says nothing is ended as by a crash, and started on its data."""
        if not has_run or self._on_hung is None:
            self._await_answer(server, START_LIMIT_S)
            return
        try:
            self._await_answer(server, HUNG_S)
        except ServicesError as error:
            self._on_hung(f"{server.name} ran before and was killed: {error}")
            self.kill(server.name)
            self._start(server)
            self._await_answer(server, START_LIMIT_S)

    def _await_answer(self, server: Server, limit_s: float) -> None:
        process = self._process(server.name)
        began = time.monotonic()
        said = began
        while True:
            try:
                server.ask()
                return
            except (OSError, ServicesError) as error:
                reason = str(error) or type(error).__name__
            now = time.monotonic()
            if process.state() == "down":
                raise ServicesError(
                    f"{server.name} stopped during its start; the end of its log:\n{self.log_tail(server.name)}"
                )
            if now - began > limit_s:
                raise ServicesError(
                    f"{server.name} did not answer within {limit_s:.0f} s ({reason}); the end of its log:\n{self.log_tail(server.name)}"
                )
            if now - said > _PROGRESS_S:
                said = now
                self._say(f"waiting for {server.name}, {now - began:.0f} s so far ({reason})")
            time.sleep(_LOOK_S)

    def _stop(self, name: str) -> None:
        process = self._process(name)
        if process.state() == "down":
            return
        self._say(f"stopping {name} ...")
        if not process.stop(STOP_LIMIT_S):
            self._say(f"{name} did not stop within {STOP_LIMIT_S:.0f} s and was killed; acknowledged data is kept")

    def log_tail(self, name: str) -> str:
        """Return the last lines of what a server logged and printed."""
        folder = self.places.of(name)
        return "\n".join(line for file in ("log.txt", "out") for line in _last_lines(folder / file))


class _StartedWith:
    """What a server was started with: its files, and the digest of everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digest = folder / "fingerprint"

    def fingerprint(self) -> str:
        try:
            return self._digest.read_text()
        except FileNotFoundError:
            return ""

    def write(self, server: Server) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, text in server.files.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self._digest.write_text(server.fingerprint())


def _input() -> bytes:
    return sys.stdin.buffer.read()


def _write(stream: TextIO, text: bytes) -> None:
    stream.write(text.decode(errors="replace"))
    stream.flush()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last_lines(path: Path) -> Sequence[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
    except FileNotFoundError:
        return ()
