"""The wheel: our packages, the compiled modules, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, listed, package_dirs


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build from a copy of what setup.cfg names, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    _copy(source)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        ".",
    ]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (wheel,) = folder.glob("iothub-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def _copy(source: Path) -> None:
    source.mkdir()
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    for folder in package_dirs().values():
        for path in folder.rglob("*"):
            if path.suffix in {".py", ".pxd", ".pyx", ".mako", ".typed"} or path.name == "py.typed":
                target = source / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())


def test_wheel_contains_only_our_packages(names: list[str]) -> None:
    """No `tests`, no `ops`, no stray top-level module."""
    tops = {name.partition("/")[0] for name in names}

    assert {top for top in tops if not top.startswith("iothub")} == set()


def test_wheel_contains_every_package(names: list[str]) -> None:
    """What setup.cfg names has arrived."""
    missing = [
        package for package in listed("options", "packages") if f"{package.replace('.', '/')}/__init__.py" not in names
    ]

    assert missing == []


@pytest.mark.parametrize("module", ["router", "filters", "buckets", "wheel", "poller", "mask"])
def test_wheel_contains_the_compiled_module(names: list[str], module: str) -> None:
    """A wheel without them would be the plain twin in disguise."""
    assert [name for name in names if name.startswith(f"iothub/engine/{module}.") and name.endswith(".so")]


def test_wheel_contains_what_is_no_python(names: list[str]) -> None:
    """The typed marker, the migrations' template, and the migrations."""
    assert "iothub/py.typed" in names
    assert "iothub_migrations/script.py.mako" in names
    assert [name for name in names if name.startswith("iothub_migrations/versions/v0001")]
