"""A machine without a C compiler: the build says so and goes on, and the plain twin runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPILERS = ("cc", "c99", "gcc", "g++", "c++", "clang", "clang++")


def tools_without_compiler(folder: Path) -> str:
    """A PATH with everything that the present one has, but no compiler."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for tool in Path(place).iterdir() if Path(place).is_dir() else ():
            name, link = tool.name, folder / tool.name
            is_compiler = name in COMPILERS or "-gcc" in name or name.startswith(("gcc-", "clang-", "g++-"))
            if not is_compiler and not link.is_symlink():
                link.symlink_to(tool)
    return str(folder)


def test_build_goes_on_without_a_compiler(tmp_path: Path) -> None:
    """One small module stands for the engine: it is translated, cannot be compiled, and stays Python."""
    project = tmp_path / "project"
    engine = project / "iothub" / "engine"
    engine.mkdir(parents=True)
    for name in ("setup.py", "iothub/net/build_stamp.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    (engine / "__init__.py").write_text("")
    (engine / "counter.py").write_text("def next_of(number):\n    return number + 1\n")
    (engine / "counter.pxd").write_text("cpdef object next_of(object number)\n")
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    environment["PATH"] = tools_without_compiler(tmp_path / "tools")

    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(
        command, cwd=project, env=environment, text=True, capture_output=True, check=False, timeout=600
    )

    assert done.returncode == 0, done.stderr
    assert not list(project.rglob("*.so"))
    assert list(project.rglob("counter.c")), "nothing was translated: this machine tested nothing"
