"""A real hub in a process of its own, administered through its own command: what integration, behaviour and scenario tests run against.

Knows how a process is started, and not what a hub does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.support.hubs import warm
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

IOTHUB = Path(sys.executable).parent / "iothub"
START_TIMEOUT_S = PATIENCE_S  # of a second on a quiet machine
COMMAND_TIMEOUT_S = PATIENCE_S
CALM = {"IOTHUB_ALARMS__REACTOR_LAG": "1m"}  # a busy machine is an alarm that no test means


def iothub(
    data_dir: Path,
    *words: str,
    secret: str | None = None,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator would, in a process of its own."""
    arguments = ["--data-dir", str(data_dir), *words]
    code, out, err = warm.run(
        arguments, stdin=secret, environment={**os.environ, **(environment or {})}, timeout_s=COMMAND_TIMEOUT_S
    )
    if check and code != 0:
        raise AssertionError(f"iothub {' '.join(words)} -> {code}\n{out}{err}")
    return subprocess.CompletedProcess([str(IOTHUB), *arguments], code, out, err)


class Running(Protocol):
    """What tests do with a hub's process, whoever has started it."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...


@dataclass
class Hub:
    """One hub process and its data directory. `ports`: by listener name ("tcp", "tls", "ws", "wss", "http").

    `config_file`: in place of the data directory's own; `environment`: of the hub, and of the commands that are run on it.
    `is_whole`: the program itself is started, as an operator starts it; otherwise a process that has loaded it is forked, a second sooner.
    """

    data_dir: Path
    ports: dict[str, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    process: Running | None = None
    config_file: Path | None = None
    is_whole: bool = False

    @property
    def _options(self) -> list[str]:
        return [] if self.config_file is None else ["--config", str(self.config_file)]

    def init(self) -> None:
        iothub(self.data_dir, "init")

    def run(self, *words: str, secret: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        return iothub(self.data_dir, *self._options, *words, secret=secret, check=check, environment=self.environment)

    def rows(self, *words: str) -> list[dict[str, object]]:
        return list(json.loads(self.run("-o", "json", *words).stdout))

    def device(self, tenant: str, name: str, secret: str = "secret") -> None:
        self.run("device", "create", tenant, name, "--password-stdin", secret=secret)

    def tenant(self, name: str, *devices: str, plan: str = "unlimited") -> None:
        self.run("tenant", "create", name, "--plan", plan)
        for device in devices:
            self.device(name, device)

    @property
    def log_file(self) -> Path:
        return self.data_dir.parent / f"{self.data_dir.name}.log"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def command(self) -> list[str]:
        settings = {f"listeners.{name}.port": str(port) for name, port in self.ports.items() if name != "http"}
        if "http" in self.ports:
            settings["http.port"] = str(self.ports["http"])
        settings.update(self.settings)
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [str(IOTHUB), "--data-dir", str(self.data_dir), *self._options, "serve", *words]

    @property
    def whole_environment(self) -> dict[str, str]:
        return {**CALM, **os.environ, **self.environment}

    def launch(self) -> None:
        """Start without waiting for anything."""
        program, *words = self.command()
        environment = self.whole_environment
        with self.log_file.open("ab") as log:
            if self.is_whole or program != str(IOTHUB) or not warm.is_like_ours(environment):
                self.process = subprocess.Popen([program, *words], stdout=log, stderr=log, env=environment)
            else:
                self.process = warm.launch(words, log=log, environment=environment)

    def start_impatiently(self) -> subprocess.CompletedProcess[str]:
        """Start with `--fail-fast`, to see it end."""
        words, environment = [*self.command(), "--fail-fast"], self.whole_environment
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)

    def start(self, limit_s: float = START_TIMEOUT_S) -> None:
        """Start and wait until every listener accepts."""
        self.ports.setdefault("tcp", free_port())
        self.launch()
        deadline = time.monotonic() + limit_s
        for port in self.ports.values():
            while not _accepts(port):
                if not self.is_running():
                    raise AssertionError(f"the hub ended:\n{self.log}")
                if time.monotonic() > deadline:
                    self.close()  # whoever asked for it gets nothing to close
                    raise AssertionError(f"the hub does not listen on {port}:\n{self.log}")
                time.sleep(0.02)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL: no DISCONNECT, no flush."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=PATIENCE_S)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def finish(self) -> None:
        """Stop it: it ends well, and its log has no traceback."""
        try:
            assert self.stop() == 0
            assert "Traceback" not in self.log, self.log
        finally:
            self.close()

    def close(self) -> None:
        if self.is_running():
            self.kill()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
