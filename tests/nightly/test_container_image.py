"""`ops/container/Containerfile`, built by buildah: the image has a compiled hub, which starts as user 10001 and keeps its data in the volume.

Needs buildah and mmdebstrap, and root. No registry of images is asked: the image that the file begins with is made here, from Debian's packages,
and has the name that the file wants.
The builder isolates by chroot alone, so that it needs no rights over namespaces; therefore the hub has the network and the process ids of the
machine, and a signal is for the hub itself. The volume of the image is a folder in the builder's store, which hides whatever is mounted there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.architecture.tree import ROOT
from tests.support.ports import free_port

FILE = ROOT / "ops/container/Containerfile"
PACKAGES = "ca-certificates,python3,python3-venv,python3-dev,python-is-python3"
CONFIGURED = ("/etc/apt", "/etc/pip.conf", "/etc/ssl/certs")  # where packages come from, and whom to trust
USER = 10001

pytestmark = pytest.mark.timeout(3600)  # whichever test is the first builds it


def run(*words: object, timeout_s: float = 120, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=timeout_s, check=False, cwd=cwd
    )
    assert done.returncode == 0, f"{words} -> {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


class Builder:
    """buildah with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.words: list[object] = ["buildah", "--root", folder / "store", "--runroot", folder / "run"]
        self.words += ["--storage-driver", "vfs"]

    def __call__(self, *words: object, timeout_s: float = 300) -> str:
        return run(*self.words, *words, timeout_s=timeout_s).strip()


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Return a builder that has the image `iothub`."""
    for program in ("buildah", "mmdebstrap"):
        assert shutil.which(program), f"{program} is missing, which builds the image: apt-get install {program}"
    assert os.geteuid() == 0, "the image is built by root alone"
    folder = tmp_path_factory.mktemp("image")
    builder, sources = Builder(folder), folder / "sources"
    (base,) = set(re.findall(r"^FROM (\S+)", FILE.read_text(), re.MULTILINE))
    suite = base.rpartition("-")[2]
    run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", suite, folder / "root.tar", timeout_s=900)
    began = builder("from", "scratch")
    builder("add", "--quiet", began, folder / "root.tar", "/")
    builder("commit", "--quiet", began, f"docker.io/library/{base}")
    sources.mkdir()
    run("bash", "-c", f"git ls-files -z | xargs -0 cp --parents -t {sources}", cwd=ROOT)
    mounts = [word for path in CONFIGURED if Path(path).exists() for word in ("--volume", f"{path}:{path}:ro")]
    where = ("--file", sources / "ops/container/Containerfile", "--tag", "iothub", sources)
    builder("build", "--isolation", "chroot", "--pull=never", "--format", "docker", *mounts, *where, timeout_s=2700)
    return builder


@pytest.fixture
def container(builder: Builder) -> Iterator[list[object]]:
    """Return the command that runs another one in a fresh container of the image, as its user."""
    name = builder("from", "--pull=never", "localhost/iothub")
    yield [*builder.words, "run", "--isolation", "chroot", name, "--"]
    builder("rm", name)


def test_image_has_a_compiled_hub(container: list[object]) -> None:
    shown = run(*container, "iothub", "version")

    assert re.search(r"twin +compiled", shown), shown


def test_hub_starts_in_an_empty_volume_and_stops(builder: Builder, container: list[object]) -> None:
    """By the entry point and the command of the image, as its user; what it stores is in the volume, and another user reads nothing of it."""
    at = container.index("--") - 1
    settings = [f"IOTHUB_LISTENERS__TCP__PORT={free_port()}", "IOTHUB_HTTP__PORT=off", "IOTHUB_ADMIN__ENABLED=off"]
    options = [word for each in settings for word in ("--env", each)]
    entry = "{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}{{range .OCIv1.Config.Cmd}}{{.}} {{end}}"
    started = builder("inspect", "--type", "image", "--format", entry, "localhost/iothub").split()
    words = [str(word) for word in (*container[:at], *options, *container[at:], *started)]

    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        try:
            log: list[str] = []
            assert any('"ready"' in (log.append(line) or line) for line in run.stderr), "".join(log)
            (hub,) = (each for each in _below(run) if "/opt/iothub/bin/iothub" in each.cmdline())
            assert hub.uids().real == USER
            data = Path(f"/proc/{hub.pid}/root/data")
            mounted = [line.split()[4] for line in Path(f"/proc/{hub.pid}/mountinfo").read_text().splitlines()]
            assert [point for point in mounted if point.endswith("/data")], "the volume is not mounted"
            assert {path.stat().st_uid for path in data.iterdir()} == {USER}
            assert data.stat().st_mode & 0o777 == 0o700
            hub.send_signal(signal.SIGTERM)
            run.stderr.read()
            assert run.wait(timeout=60) == 0
        finally:
            for process in (*_below(run), run):
                process.kill()


def _below(run: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return what a builder has started and not ended."""
    try:
        return psutil.Process(run.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
