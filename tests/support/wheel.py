"""Build the distribution's wheel from a copy of what setup.cfg names, so that nothing is left in the checkout.

Knows no expectation of its contents. Without Cython the build takes seconds; with it, the C compiler has its minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.architecture.tree import ROOT, package_dirs

_SHIPPED = frozenset((".py", ".pxd", ".pyx", ".mako"))


def build(folder: Path, *, is_compiled: bool) -> list[str]:
    """Return the names in the wheel. `is_compiled`: False hides Cython from the build, as on a machine without it."""
    source = folder / "source"
    _copy(source)
    environment = dict(os.environ)
    if not is_compiled:
        environment["PYTHONPATH"] = str(_without_cython(folder))
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
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, timeout=1200, check=False
    )
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
            if path.suffix in _SHIPPED or path.name == "py.typed":
                target = source / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())


def _without_cython(folder: Path) -> Path:
    hiding = folder / "hiding"
    (hiding / "Cython").mkdir(parents=True)
    (hiding / "Cython/__init__.py").write_text('raise ImportError("hidden by a test")\n')
    return hiding
