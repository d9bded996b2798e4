"""Installs iothub of this checkout into `.venv/`, says what it does meanwhile, and in plain words why it cannot: `make install`.

Needs the standard library alone. The libraries are downloaded while the message plane is compiled, with those of the extras of setup.cfg
that the command line names (`dev`: what the tests need).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from configparser import ConfigParser
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PIP = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--retries", "2"]
TOOLS = ["setuptools>=77", "wheel", "Cython>=3.1,<4"]
SAY_EVERY_S = 10.0  # without a terminal, so that a log stays short
TAIL_LINES = 15
UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|ConnectTimeout|ProxyError|"
    r"Network is unreachable|Connection refused|Read timed out|Errno -[23]\b"
)


class Steps:
    """What is done now, on one line: with a terminal it is written again, else every ten seconds."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._said = 0.0
        self._is_terminal = sys.stdout.isatty()

    def say(self, text: str, *, is_progress: bool = False) -> None:
        """Write a line with the seconds since the start. `is_progress`: the next line may replace it."""
        now = time.monotonic()
        if is_progress and not self._is_terminal and now - self._said < SAY_EVERY_S:
            return
        self._said = now
        line = f"[{now - self._began:4.0f} s] {text}"
        if self._is_terminal:
            sys.stdout.write("\r\033[K" + line + ("" if is_progress else "\n"))
        else:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()


def main() -> None:
    steps = Steps()
    if not PYTHON.exists():
        steps.say(f"creating {VENV.name} with Python {sys.version.split()[0]}")
        create_environment()
    steps.say("installing the build tools")
    run_pip(["install", *TOOLS])
    with tempfile.TemporaryFile("w+") as log:
        steps.say("downloading the libraries, and compiling the message plane meanwhile")
        # Most modules of what the tests need are never imported; Python compiles the others itself, at their first import.
        bytecode = ["--no-compile"] if "dev" in sys.argv[1:] else []
        libraries = subprocess.Popen(
            [*PIP, "install", *bytecode, *requirements("admin", *sys.argv[1:])], stdout=log, stderr=log, cwd=ROOT
        )
        try:
            compile_modules(steps)
            steps.say("waiting for the libraries", is_progress=True)
        finally:
            code = libraries.wait()
        log.seek(0)
        require(code, log.read())
    steps.say("installing the iothub command")
    # The modules are compiled already, in place; pip would compile them again in a folder of its own.
    run_pip(["install", "--no-build-isolation", "--no-deps", "--editable", "."], IOTHUB_COMPILE="0")
    steps.say(f"installed into {VENV.name}: {twin()}")


def create_environment() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "venv", str(VENV)], cwd=ROOT, text=True, capture_output=True, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        sys.exit(
            "make: the virtual environment could not be created.\n"
            f"{tail(done.stdout + done.stderr)}\n"
            "Install what Python needs for it (Debian, Ubuntu: apt-get install python3-venv) and run make again."
        )


def requirements(*extras: str) -> list[str]:
    """Return what iothub needs at run time, and what the extras add, from setup.cfg."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    added = [setup["options.extras_require"][name].replace(";", "\n") for name in extras]
    lines = "\n".join([setup["options"]["install_requires"], *added]).splitlines()
    return [line.strip() for line in lines if line.strip()]


def run_pip(words: list[str], **environment: str) -> None:
    done = subprocess.run(
        [*PIP, *words], cwd=ROOT, env={**os.environ, **environment}, text=True, capture_output=True, check=False
    )
    require(done.returncode, done.stdout + done.stderr)


def require(code: int, output: str) -> None:
    """Exit with what pip says, unless it succeeded."""
    if code == 0:
        return
    if UNREACHABLE.search(output):
        sys.exit(
            "\nmake: the package index cannot be reached, and the libraries are not installed yet.\n"
            f"{tail(output)}\n"
            "Check the network, or the proxy (HTTPS_PROXY, PIP_INDEX_URL), and run make again; what is done is kept.\n"
            "Without a network: PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER make run, with the wheels in FOLDER\n"
            "(on a machine with a network: pip download -d FOLDER '.[admin]' 'setuptools>=77' wheel 'Cython>=3.1,<4')."
        )
    sys.exit(f"\nmake: pip failed ({code}):\n{tail(output)}")


def compile_modules(steps: Steps) -> None:
    """Translate and compile in place. A module that cannot be compiled stays Python: `twin` says so."""
    lack = missing_for_compiling()
    if lack:
        steps.say(f"{lack}: the message plane will run in plain Python, several times slower")
    command = [str(PYTHON), "setup.py", "build_ext", "--inplace"]
    with tempfile.TemporaryFile("w+") as kept:
        running = subprocess.Popen(
            command, cwd=ROOT, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert running.stdout is not None  # noqa: S101  it is a pipe
        follow(steps, running.stdout, kept)
        if running.wait() != 0:
            kept.seek(0)
            sys.exit(f"\nmake: compiling failed:\n{tail(kept.read())}")


def follow(steps: Steps, output: IO[str], kept: IO[str]) -> None:
    """Say how far the build is, from its lines."""
    total, translated, compiled = "?", 0, 0
    for line in output:
        kept.write(line)
        for found in re.findall(r"\[ *\d+/(\d+)\] Cythonizing", line):
            total, translated = found, translated + 1
            steps.say(f"compiling: {translated} of {total} modules translated to C", is_progress=True)
        if line.startswith("building '"):
            compiled += 1
            steps.say(f"compiling: {compiled} of {total} modules", is_progress=True)


def missing_for_compiling() -> str:
    """Say what a C compiler would lack here; empty: nothing."""
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler.split()[0]) is None:
        return f"there is no C compiler ({compiler.split()[0]})"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return "the Python headers are missing"
    return ""


def twin() -> str:
    """Say which message plane will run."""
    found = subprocess.run(
        [
            str(PYTHON),
            "-c",
            "import importlib.util as util; print(getattr(util.find_spec('iothub.engine.poller'), 'origin', ''))",
        ],
        cwd=tempfile.gettempdir(),
        text=True,
        capture_output=True,
        check=False,
    )
    if found.stdout.strip().endswith(".so"):
        return "the compiled message plane will run"
    return (
        "the message plane is NOT compiled; plain Python will run, which does the same several times slower.\n"
        "To compile it: install a C compiler and the Python headers (Debian, Ubuntu: apt-get install gcc python3-dev), "
        "then make clean install."
    )


def tail(output: str) -> str:
    return "\n".join(f"  {line}" for line in output.strip().splitlines()[-TAIL_LINES:])


if __name__ == "__main__":
    main()
