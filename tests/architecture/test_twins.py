"""What is compiled and its plain twin are the same thing to whoever imports them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from tests.architecture.tree import compiled_folders, modules, package_dirs

_C_METHOD = re.compile(r"^ +cdef [^(\n]*?(\w+)\(", re.MULTILINE)

_UNCOLLECTED = re.compile(r"^@cython\.no_gc\b.*\n(?:@.*\n)*cdef class (\w+)", re.MULTILINE)

# Of the classes that are named: those that the garbage collector looks at.
_COLLECTED = """
import importlib, json, sys
is_collected = 1 << 14  # Py_TPFLAGS_HAVE_GC
print(json.dumps([[module, name] for module, name in json.loads(sys.argv[1])
                  if getattr(importlib.import_module(module), name).__flags__ & is_collected]))
"""

# For each module: its public names, and the public names of its classes.
_LOOK = """
import importlib, json, sys, typing
found = {}
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(name)
    names = {}
    for key, value in vars(module).items():
        if key.startswith("_") or getattr(value, "__module__", None) != name or isinstance(value, typing.TypeVar):
            continue
        is_class = isinstance(value, type)
        names[key] = sorted(k for k in vars(value) if not k.startswith("_") and callable(getattr(value, k))) if is_class else []
    found[name] = [names, module.__file__.endswith(".py")]
print(json.dumps(found))
"""


def _twins(*, is_plain: bool) -> dict[str, tuple[dict[str, list[str]], bool]]:
    names = sorted(
        f"{name}.{path.stem}" for name, folder in compiled_folders().items() for path in folder.glob("[a-z]*.py")
    )
    found: dict[str, tuple[dict[str, list[str]], bool]] = json.loads(_output(_LOOK, names, is_plain=is_plain))
    return found


def _output(program: str, argument: object, *, is_plain: bool) -> str:
    folders = os.pathsep.join(sorted({str(folder.parent) for folder in package_dirs().values()}))
    environment = {**os.environ, "PYTHONPATH": folders}
    environment.pop("IOTHUB_PURE_PYTHON", None)
    if is_plain:
        environment["IOTHUB_PURE_PYTHON"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(argument)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_twins_expose_the_same_names() -> None:
    """A name that one twin lacks is a defect that only one half of the tests would see; C methods are nobody's interface."""
    compiled, plain = _twins(is_plain=False), _twins(is_plain=True)

    assert {name: sorted(names) for name, (names, _) in compiled.items()} == {
        name: sorted(names) for name, (names, _) in plain.items()
    }
    for module, (classes, _) in compiled.items():
        hidden = _c_methods(module)
        for name, methods in classes.items():
            assert set(methods) | hidden >= set(plain[module][0][name]), (module, name)
            assert set(methods) <= set(plain[module][0][name]), (module, name)


def _c_methods(module: str) -> set[str]:
    declaration = modules()[module].with_suffix(".pxd")
    return set(_C_METHOD.findall(declaration.read_text())) if declaration.exists() else set()


def test_classes_that_need_no_garbage_collection_have_none() -> None:
    """Cython forgets the decorators of a class in a `.pxd` whose body is in the `.py`: `setup.py` reminds it, and free lists work by the same way."""
    uncollected = [
        (f"{package}.{path.stem}", name)
        for package, folder in compiled_folders().items()
        for path in sorted(folder.glob("*.pxd"))
        for name in _UNCOLLECTED.findall(path.read_text())
    ]

    assert len(uncollected) >= 7
    assert json.loads(_output(_COLLECTED, uncollected, is_plain=False)) == []


def test_plain_twin_is_really_plain() -> None:
    """IOTHUB_PURE_PYTHON=1 finds sources only, even beside compiled modules."""
    plain = _twins(is_plain=True)

    assert [name for name, (_, is_source) in plain.items() if not is_source] == []


def test_every_typed_declaration_has_its_source() -> None:
    """A `.pxd` without a `.py` or `.pyx` of its name types nothing, but for pure declarations of C calls."""
    for folder in compiled_folders().values():
        declarations = {path.stem for path in folder.glob("*.pxd")}
        sources = {path.stem for path in folder.glob("*.py*") if path.suffix in {".py", ".pyx"}}

        assert declarations - sources <= {"syscalls"}
