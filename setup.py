"""Compile the message plane and the queues: every `.py` with a `.pxd` beside it, and every `.pyx`, in their packages.

All metadata is in setup.cfg. Without a C compiler or Cython the build goes on and the plain twin runs; it says so.
A hash of the sources goes beside what was built, so that a hub does not start on modules that were built from other ones.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import runpy
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

# Folders in which top packages lie, and the packages in them that are compiled.
COMPILED = (
    (Path(), Path("iothub/engine")),
    (Path(), Path("iothub/peers")),
    (Path("services"), Path("iothub_services")),
    (Path("services"), Path("iothub_services/hbase")),
    (Path("services"), Path("iothub_services/queues")),
    (Path("services"), Path("iothub_services/queues/hbase")),
    (Path("services"), Path("iothub_services/queues/journal")),
    (Path("services"), Path("iothub_services/queues/redis")),
    (Path("services"), Path("iothub_services/queues/remote")),
    (Path("services"), Path("iothub_services/queues/sqlite")),
    (Path("services"), Path("iothub_services/quota")),
    (Path("services"), Path("iothub_services/retained")),
    (Path("tenants"), Path("iothub_tenants/broker")),
    (Path("tenants"), Path("iothub_tenants/control")),
)
# What a class in a .pxd says of its memory, as decorators.
OF_MEMORY = ("freelist", "no_gc")
WITH_FREE_LIST = re.compile(r"^@cython\.freelist\b.*\n(?:@.*\n)*cdef class (\w+)", re.MULTILINE)
build_stamp = runpy.run_path("iothub/net/build_stamp.py")


def sources() -> list[tuple[str, Path]]:
    """Return (dotted name, file) of what is compiled."""
    found = []
    for root, package in COMPILED:
        paths = build_stamp["compiled_sources"](root / package)
        found += [(".".join((*package.parts, path.stem)), path) for path in paths]
    return found


def keep_what_is_said_of_memory() -> None:
    """Let Cython heed `OF_MEMORY` on a class whose body is in the .py: it forgets the .pxd's decorators when it comes to the body."""
    from Cython.Compiler.Nodes import CClassDefNode

    analyse = getattr(CClassDefNode, "analyse_declarations", None)
    if analyse is None:
        return  # a Cython of another make: `say_what_was_forgotten` finds it out
    # What is set here is needed in the processes that translate, too: by fork they have it, by other ways they would begin without it.
    multiprocessing.set_start_method("fork", force=True)

    def analyse_declarations(node: CClassDefNode, env: object) -> None:
        declared = env.lookup_here(node.class_name)
        scope = None if declared is None else getattr(declared.type, "scope", None)
        said = getattr(scope, "directives", None) or {}
        analyse(node, env)
        kept = {name: said[name] for name in OF_MEMORY if said.get(name)}
        if kept and not node.in_pxd:
            node.scope.directives = {**node.scope.directives, **kept}

    CClassDefNode.analyse_declarations = analyse_declarations


def say_what_was_forgotten(compiled: list[object]) -> None:
    """Say which classes have no free list in the C sources, though their .pxd says so: then `no_gc` was forgotten in the same way."""
    import Cython

    forgotten = []
    translated = {extension.name: extension.sources[0] for extension in compiled}
    for name, path in sources():
        declaration = path.with_suffix(".pxd")
        classes = WITH_FREE_LIST.findall(declaration.read_text()) if declaration.exists() else []
        written = Path(translated[name]).read_text() if classes else ""
        forgotten += [each for each in classes if not re.search(rf"\b__pyx_freelist_\w+_{each}\b", written)]
    if forgotten:
        print(
            f"iothub: Cython {Cython.__version__} does not heed {' and '.join(OF_MEMORY)} of {', '.join(forgotten)} in their .pxd files; "
            "what it builds works, is slower, and needs more memory for each connection",
            file=sys.stderr,
        )


def extensions() -> list[object]:
    """Return what is to be compiled: nothing with IOTHUB_COMPILE=0, for a checkout whose modules are compiled already."""
    if os.environ.get("IOTHUB_COMPILE") == "0":
        return []
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
    keep_what_is_said_of_memory()
    compiled: list[Extension] = cythonize(
        modules,
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        include_path=[str(root) for root, _ in COMPILED],
        language_level=3,
        compiler_directives={"binding": False},
    )
    say_what_was_forgotten(compiled)
    for extension in compiled:
        extension.optional = True  # no compiler: the plain twin. Set here, because not every Cython hands it on
    return compiled


class StampedBuild(build_ext):
    """Says beside what it has built from which sources that was."""

    def build_extensions(self) -> None:
        # Some Pythons add where their own libraries are: modules need none of them, and may go to another machine.
        self.compiler.linker_so = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        super().build_extensions()

    def run(self) -> None:
        super().run()
        for root, package in COMPILED:
            folder = Path(self.get_ext_fullpath(".".join((*package.parts, "any")))).parent
            if folder.is_dir():
                (folder / build_stamp["STAMP"]).write_text(build_stamp["fingerprint"](root / package) + "\n")


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": StampedBuild},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
