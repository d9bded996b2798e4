"""`make dist-arm64`: the wheel, cross-compiled, is a compiled hub on arm64. It runs in QEMU, with Debian's Python and the libraries' own wheels."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.support.ports import free_port

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux2014_aarch64", "linux_aarch64")

pytestmark = pytest.mark.timeout(2400)  # whichever test is the first builds it


def run(*words: object, timeout_s: float = 120, stdin: str = "") -> str:
    done = subprocess.run(
        [str(word) for word in words], input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{words} -> {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """Return the command of a Python of arm64 that has the wheel and its libraries."""
    folder = tmp_path_factory.mktemp("arm64")
    root, site = folder / "root", folder / "site"
    run("bash", ROOT / "ops/dist_arm64.sh", folder / "dist", root, timeout_s=1500)
    (wheel,) = (folder / "dist").glob("*-linux_aarch64.whl")
    platforms = [word for each in PLATFORMS for word in ("--platform", each)]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", site]
    run(*pip, *platforms, "--python-version", PYTHON, "--only-binary=:all:", wheel, timeout_s=600)
    program = (root / f"usr/bin/python{PYTHON}", "-P")  # not the checkout that tests run in
    return ["qemu-aarch64-static", "-L", root, "-E", f"PYTHONPATH={site}", *program]


@pytest.fixture
def hub(python: list[object], tmp_path: Path) -> Iterator[int]:
    """Start a hub with a device, and return its port."""
    iothub, port = [*python, "-m", "iothub.cli", "--data-dir", tmp_path / "hub"], free_port()
    run(*iothub, "init")
    run(*iothub, "tenant", "create", "acme")
    run(*iothub, "device", "create", "acme", "dev1", "--password-stdin", stdin="secret")
    words = [*iothub, "serve", "--set", f"listeners.tcp.port={port}", "--set", "http.port=off"]
    with subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert any('"ready"' in line for line in process.stderr)
            yield port
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def test_wheel_has_the_compiled_plane_of_arm64(python: list[object]) -> None:
    shown = run(*python, "-m", "iothub.cli", "version")

    assert "compiled" in shown
    assert "aarch64" in shown


def test_hub_of_the_wheel_stores_a_message_and_delivers_it(hub: int) -> None:
    """A retained one: its body and its checksum are made by the code that differs between processors."""
    login = ("-p", hub, "-u", "acme/dev1", "-P", "secret", "-q", "1", "-t", "a")
    run("mosquitto_pub", *login, "-r", "-m", "x" * 5_000)

    assert run("mosquitto_sub", *login, "-C", "1").strip() == "x" * 5_000
