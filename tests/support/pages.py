"""Pages as scripts: the commands of a Markdown page, run in their order in one empty directory, as a reader would type them.

Knows no hub's inside. A fenced block `sh` must succeed; `sh serve` runs until the next `sh serve` or the end of the page, once it is ready;
`sh exit=N` must end with that code; `sh checkout` needs the checkout itself and is left to other tests. A block of any other language with
`file=NAME` is a file that the reader saves. Ports are exchanged for free ones. A command `iothub` is forked from a process that has loaded the
program (`tests/support/hubs/warm.py`), so that a page costs its hub and not the same imports forty times; a hub is started as it is.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.hubs import warm
from tests.support.ports import free_port

PORTS = ("1883", "1884", "8883", "8083", "8084", "8080", "8081")
START_TIMEOUT_S = 300.0
BLOCK_TIMEOUT_S = 300.0
NODE_MODULES = (
    Path(__file__).parents[1] / "scenarios" / "node_modules"
)  # where mqtt.js is: `npm install mqtt` of the reader
_BLOCK = re.compile(r"^```(?:sh|\w+ (?=file=))([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `word`: what stands behind the language."""

    word: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the commands of a page in their order."""
    return [Block(word.strip(), text) for word, text in _BLOCK.findall(page.read_text(encoding="utf-8"))]


class Walk:
    """One reader with one page, in an empty directory. `is_whole`: every command starts the program itself."""

    def __init__(self, directory: Path, *, is_whole: bool) -> None:
        self._directory = directory
        self._hub: subprocess.Popen[bytes] | None = None
        self._ports = {port: free_port() for port in PORTS}
        paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        if not is_whole:
            programs = directory.with_name(f"{directory.name}.bin")
            programs.mkdir()
            warm.put_program(programs, Path(sys.executable).parent / "iothub")
            paths = f"{programs}:{paths}"
        self._environment = {**os.environ, "PATH": paths, "HOME": str(directory), "NODE_PATH": str(NODE_MODULES)}
        self._environment["IOTHUB_LISTENERS__TCP__PORT"] = str(self._ports["1883"])  # what no command names

    def run(self, page: Path) -> int:
        """Follow the page; returns how many blocks were run. Raises AssertionError at the first that does not do what it says."""
        done = 0
        try:
            for block in blocks(page):
                if block.word == "checkout":
                    continue
                done += 1
                if block.word.startswith("file="):
                    (self._directory / block.word.removeprefix("file=")).write_text(self._exchanged(block.text))
                elif block.word == "serve":
                    self._serve(self._exchanged(block.text))
                else:
                    self._type(self._exchanged(block.text), int(block.word.removeprefix("exit=") or 0))
        finally:
            self.stop()
        return done

    def stop(self) -> None:
        hub, self._hub = self._hub, None
        if hub is None:
            return
        os.killpg(hub.pid, signal.SIGTERM)
        code = hub.wait(300)
        assert code == 0, f"serve ended with {code}: {self._log()}"

    def _type(self, text: str, expected: int) -> None:
        if re.search(r"(?m)(^|[|;&(]|\bexec)\s*node\s", text):
            assert (NODE_MODULES / "mqtt").is_dir(), "mqtt.js is not installed: cd tests/scenarios && npm ci"
        script = ["bash", "-e", "-o", "pipefail", "-c", text]
        done = subprocess.run(
            script,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == expected, (
            f"{text}ended with {done.returncode}, expected {expected}:\n{done.stdout}{done.stderr}{self._log()}"
        )

    def _serve(self, text: str) -> None:
        self.stop()
        with (self._directory / "serve.log").open("wb") as log:
            self._hub = subprocess.Popen(
                ["bash", "-c", f"exec {text}"],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            assert self._hub.poll() is None, f"{text}ended: {self._log()}"
            assert time.monotonic() < deadline, f"{text}is not ready: {self._log()}"
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        return '"event": "ready"' in self._log()

    def _log(self) -> str:
        log = self._directory / "serve.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def _exchanged(self, text: str) -> str:
        return re.sub(r"\b(?:" + "|".join(PORTS) + r")\b", lambda found: str(self._ports[found[0]]), text)
