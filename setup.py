"""Compile the message plane and the queues on HBase: every `.py` with a `.pxd` beside it, and every `.pyx`, in their packages.

All metadata is in setup.cfg. Without a C compiler or Cython the build goes on and the plain twin runs; it says so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import setup

# Folders in which top packages lie, and the packages in them that are compiled.
COMPILED = ((Path(), Path("iothub/engine")), (Path("services"), Path("iothub_services/queues/hbase")))


def sources() -> list[tuple[str, Path]]:
    """Return (dotted name, file) of what is compiled."""
    found = []
    for root, package in COMPILED:
        folder = root / package
        typed = [path.with_suffix(".py") for path in sorted(folder.glob("*.pxd")) if path.with_suffix(".py").exists()]
        paths = [*typed, *sorted(folder.glob("*.pyx"))]
        found += [(".".join((*package.parts, path.stem)), path) for path in paths]
    return found


def extensions() -> list[object]:
    try:
        from Cython.Build import cythonize
        from setuptools import Extension
    except ImportError:
        print("iothub: Cython is not installed; building the plain twin only (slow)", file=sys.stderr)
        return []
    modules = [
        Extension(
            name,
            [str(path)],
            extra_compile_args=["-O2", "-g0", "-fno-strict-aliasing"],
        )
        for name, path in sources()
    ]
    if not modules:
        return []
    compiled: list[Extension] = cythonize(
        modules,
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        include_path=[str(root) for root, _ in COMPILED],
        language_level=3,
        compiler_directives={"binding": False},
    )
    for extension in compiled:
        extension.optional = True  # no compiler: the plain twin. Set here, because not every Cython hands it on
    return compiled


setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
