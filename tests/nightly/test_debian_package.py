"""`make deb`: the package of the hub, taken apart into a folder, is a compiled hub with its units and its configuration."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from iothub.config.profiles import EMBEDDED
from tests.architecture.tree import ROOT
from tests.support.ports import free_port

pytestmark = pytest.mark.timeout(1600)  # whichever test is the first builds it


def run(*words: object, timeout_s: float = 60) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{words} -> {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deb")
    run("bash", ROOT / "ops/debian/build.sh", folder, timeout_s=1500)
    (found,) = folder.glob("*.deb")
    return found


@pytest.fixture(scope="module")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    run("dpkg-deb", "-x", package, folder)
    return folder


def test_package_has_its_files_where_debian_has_them(package: Path, root: Path) -> None:
    """Units, command, configuration; nothing of the machine that built it, nothing outside these folders."""
    units = {path.name for path in (root / "lib/systemd/system").iterdir()}

    assert {path.name for path in root.iterdir()} == {"etc", "lib", "opt", "usr"}
    assert units == {"iothub.service", "iothub-admin.service", "iothub-jobs.service", "iothub-jobs.timer"}
    assert (root / "etc/iothub/iothub.toml").read_text() == EMBEDDED.config
    assert run("dpkg-deb", "-f", package, "Package").strip() == "iothub"
    scripts = [path for path in (root / "opt/iothub/bin").iterdir() if path.is_file() and not path.is_symlink()]
    assert {path.read_text().partition("\n")[0] for path in scripts} == {"#!/opt/iothub/bin/python3"}


def test_lintian_has_neither_an_error_nor_a_warning(package: Path) -> None:
    """Of the package as Debian's own linter sees it; `ops/debian/overrides` says why what is left is as it is."""
    run("lintian", "--allow-root", "--profile", "debian", "--fail-on", "error,warning", package, timeout_s=600)


def test_modules_look_for_libraries_in_no_place_of_the_machine_that_built_them(root: Path) -> None:
    modules = list(root.glob("opt/iothub/lib/*/site-packages/iothub*/**/*.so"))

    assert modules
    assert not [module for module in modules if "RUNPATH" in run("readelf", "-d", module)]


def test_hub_of_the_package_starts_and_stops(root: Path, tmp_path: Path) -> None:
    """With the configuration of the package, found as on a machine: by the link in the data directory."""
    iothub = [root / "opt/iothub/bin/python3", root / "opt/iothub/bin/iothub", "--data-dir", tmp_path / "hub"]
    (tmp_path / "hub").mkdir(mode=0o700)
    (tmp_path / "hub/iothub.toml").symlink_to(root / "etc/iothub/iothub.toml")

    assert "compiled" in run(*iothub, "version")
    run(*iothub, "init")
    run(*iothub, "tenant", "create", "acme")
    words = [*iothub, "serve", "--set", f"listeners.tcp.port={free_port()}"]
    hub = subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True)
    assert hub.stderr is not None
    try:
        assert any('"ready"' in line for line in hub.stderr)
        hub.send_signal(signal.SIGTERM)
        hub.stderr.read()
        assert hub.wait(timeout=30) == 0
    finally:
        hub.kill()
        hub.wait()
        hub.stderr.close()


def test_compiled_modules_are_stripped_and_can_be_loaded(root: Path) -> None:
    """All of them: a library that strip has broken would be noticed by whoever uses its driver."""
    names = "\n".join(
        str(path.relative_to(site).with_name(path.name.partition(".")[0])).replace("/", ".")
        for site in root.glob("opt/iothub/lib/*/site-packages")
        for path in sorted(site.rglob("*.cpython-*.so"))
        if not path.is_relative_to(site / "iothub_spark")
    )
    program = "import importlib, sys, psycopg\nfor name in sys.stdin.read().split(): importlib.import_module(name)"

    done = subprocess.run(
        [root / "opt/iothub/bin/python3", "-c", program], input=names, capture_output=True, text=True, timeout=120
    )

    assert len(names.split()) > 30
    assert done.returncode == 0, done.stderr
