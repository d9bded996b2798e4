"""Compile the message plane: every `.py` with a `.pxd` beside it, and every `.pyx`, in `iothub/engine`.

All metadata is in setup.cfg. Without a C compiler or Cython the build goes on and the plain twin runs; it says so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import setup

ENGINE = Path("iothub/engine")


def sources() -> list[Path]:
    typed = [path.with_suffix(".py") for path in sorted(ENGINE.glob("*.pxd")) if path.with_suffix(".py").exists()]
    return typed + sorted(ENGINE.glob("*.pyx"))


def extensions() -> list[object]:
    try:
        from Cython.Build import cythonize
        from setuptools import Extension
    except ImportError:
        print("iothub: Cython is not installed; building the plain twin only (slow)", file=sys.stderr)
        return []
    modules = [
        Extension(
            ".".join(path.with_suffix("").parts),
            [str(path)],
            extra_compile_args=["-O2", "-g0", "-fno-strict-aliasing"],
        )
        for path in sources()
    ]
    if not modules:
        return []
    compiled: list[Extension] = cythonize(
        modules,
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        language_level=3,
        compiler_directives={"binding": False},
    )
    for extension in compiled:
        extension.optional = True  # no compiler: the plain twin. Set here, because not every Cython hands it on
    return compiled


setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
