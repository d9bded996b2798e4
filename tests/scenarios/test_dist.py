"""What `make dist` builds, installed into an empty environment: a user without a checkout has a whole, compiled hub."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, compiled_folders, setup
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

# In place of a compiler: C that is byte for byte what the checkout was built from has been compiled there, and is not compiled again. Everything
# else is compiled without optimisation, which takes most of a compiler's time.
COMPILER = """#!/bin/sh
for word in "$@"; do
    case "$word" in *.c) source=$word ;; esac
    [ "$before" = -o ] && target=$word
    before=$word
done
there="{checkout}/$target"
if [ -n "$source" ] && cmp -s "$source" "{checkout}/$source" && [ "$there" -nt "{checkout}/$source" ]; then exec cp "$there" "$target"; fi
exec cc "$@" -O0
"""
VERSION = setup()["metadata"]["version"]
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "IOTHUB_PURE_PYTHON")}


def _run(*words: object, stdin: str | None = None, timeout_s: float = PATIENCE_S) -> str:
    """Run a command that must succeed; returns what it prints."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False, env=CLEAN, cwd="/"
    )
    assert done.returncode == 0, f"{command} -> {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with sdist and wheel; the wheel was built from the sdist."""
    folder, compiler = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("compiler") / "cc"
    compiler.write_text(COMPILER.format(checkout=ROOT))
    compiler.chmod(0o755)
    _run("env", f"CC={compiler}", "bash", ROOT / "ops/dist.sh", folder, timeout_s=840)
    return folder


def test_dist_is_one_sdist_and_one_wheel_of_this_version(dist: Path) -> None:
    """Both carry the version of setup.cfg; the sdist carries the change log."""
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")

    assert wheel.name.startswith(f"iothub-{VERSION}-")
    assert sdist.name == f"iothub-{VERSION}.tar.gz"
    with tarfile.open(sdist) as archive:
        assert f"iothub-{VERSION}/CHANGELOG.md" in archive.getnames()


def test_wheel_contains_every_compiled_module(dist: Path) -> None:
    """A wheel without them would be the plain twin in disguise."""
    expected = set()
    for name, folder in compiled_folders().items():
        typed = {path.stem for path in folder.glob("*.pxd") if path.with_suffix(".py").exists()}
        stems = typed | {path.stem for path in folder.glob("*.pyx")}
        expected |= {f"{name.replace('.', '/')}/{stem}" for stem in stems}

    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        names = archive.namelist()

    assert {name.partition(".")[0] for name in names if name.endswith(".so")} == expected


@contextmanager
def _hub(iothub: Path, data_dir: Path, port: int) -> Iterator[None]:
    """A hub of the installed command, ready; ended as by SIGTERM."""
    command = [iothub, "--data-dir", data_dir, "serve", "--set", f"listeners.tcp.port={port}"]
    environment = {**CLEAN, "IOTHUB_REQUIRE_COMPILED": "1"}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True)
    assert running.stdout is not None
    try:
        lines = []
        for line in running.stdout:
            lines.append(line)
            if "ready" in line:
                break
        else:
            pytest.fail(f"the hub ended before it was ready:\n{''.join(lines)}")
        yield
        running.send_signal(signal.SIGTERM)
        running.stdout.read()
        assert running.wait(timeout=PATIENCE_S) == 0
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def test_wheel_in_an_empty_environment_is_a_hub(dist: Path, tmp_path: Path) -> None:
    """`iothub init`, a tenant, a device, a publish, a subscribe: as the README has them."""
    _run(sys.executable, "-m", "venv", tmp_path / "venv")
    binaries = tmp_path / "venv/bin"
    _run(binaries / "pip", "install", "--quiet", "--no-compile", next(dist.glob("*.whl")), timeout_s=500)
    iothub, data_dir, port = binaries / "iothub", tmp_path / "hub", free_port()

    assert _run(iothub, "--version").split() == ["iothub", VERSION]
    _run(iothub, "--data-dir", data_dir, "init")
    _run(iothub, "--data-dir", data_dir, "tenant", "create", "acme")
    _run(iothub, "--data-dir", data_dir, "device", "create", "acme", "dev1", "--password-stdin", stdin="secret")
    with _hub(iothub, data_dir, port):
        client = ("-h", "127.0.0.1", "-p", port, "-u", "acme/dev1", "-P", "secret", "-q", 1)
        _run("mosquitto_pub", *client, "-r", "-t", "room/temperature", "-m", "21.5")
        heard = _run("mosquitto_sub", *client, "-t", "room/#", "-v", "-C", 1, "-W", int(PATIENCE_S))

    assert heard == "room/temperature 21.5\n"
