"""Every module says what it is for, is named by a test, and stays small enough to be read in one go."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.architecture.tree import ROOT, files, functions, imports, modules, parsed, shown

FILE_LINES = 600
FUNCTION_LINES = 60
SHORT_FUNCTION_LINES = 30
SHORT_SHARE = 0.9  # nine functions in ten

# Functions above the budget, with the length that they may have at most. The list may only shrink.
LONG_FUNCTIONS: dict[str, int] = {}

_FROM = re.compile(r"^ *from ([\w.]+) import (?:\(([^)]*)\)|(.+))", re.MULTILINE)

# What no test names yet. The list may only shrink: a module that gets its test must leave it.
WITHOUT_TEST: frozenset[str] = frozenset(
    (
        "iothub.cli.files",
        "iothub.config.value_types",
        "iothub.net.poller_reactor",
        "iothub_migrations.env",
        "iothub_services.queues.sqlite.append",
        "iothub_services.queues.sqlite.row_cache",
    )
)


def test_every_module_has_a_docstring() -> None:
    """Its first line says what the module is for."""
    bare = [name for name, path in modules().items() if not ast.get_docstring(parsed(path))]

    assert bare == []


def test_every_module_is_named_by_a_test() -> None:
    """Some test imports it, has its name, or speaks of it; the exceptions are listed, and the list has no dead lines."""
    untested = {name for name, path in modules().items() if _needs_test(name, path) and not _is_named(name)}

    assert untested - WITHOUT_TEST == set()
    assert WITHOUT_TEST - untested == set(), "these have a test now, or are gone: take them off the list"


def _needs_test(name: str, path: Path) -> bool:
    return path.name != "__init__.py" and ".versions." not in name and ".testing." not in name


def _is_named(name: str) -> bool:
    """A noun of the command line is named by the page of all commands, which a test holds."""
    imported, stems, texts = _tests()
    top, _, leaf = name.rpartition(".")
    is_noun = top == "iothub.cli" and f"\n## {leaf}\n" in (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    return name in imported or f"test_{leaf}" in stems or name in texts or is_noun


@cache
def _tests() -> tuple[frozenset[str], frozenset[str], str]:
    """What tests import from where, what they are called, and all they say; a thousand files take seconds to parse, and this does not."""
    imported: set[str] = set()
    stems: set[str] = set()
    texts = []
    for path in files(".py"):
        if path.is_relative_to(ROOT / "tests") and path.parent.name != "architecture":
            texts.append(path.read_text(encoding="utf-8"))
            stems.add(path.stem)
    text = "\n".join(texts)
    for package, in_brackets, in_line in _FROM.findall(text):
        names = (in_brackets or in_line).split(",")
        imported.update(f"{package}.{name.split()[0]}" for name in names if name.strip())
    return frozenset(imported), frozenset(stems), text


def test_files_stay_within_their_budget() -> None:
    """A file that outgrows this is two ideas."""
    paths = [*modules().values(), *(ROOT / "iothub/engine").glob("*.pyx")]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    longest = sorted(lengths, key=lengths.__getitem__)[-3:]
    print(f"{len(lengths)} files; longest: {[(shown(path), lengths[path]) for path in longest]}")

    assert [f"{shown(path)}: {count}" for path, count in lengths.items() if count > FILE_LINES] == []


def test_functions_stay_within_their_budget() -> None:
    """None above 60 lines, nine in ten at most 30."""
    lengths = [(length, shown(path), name) for path in modules().values() for name, length in functions(path)]
    short = sum(length <= SHORT_FUNCTION_LINES for length, _, _ in lengths)
    print(f"{len(lengths)} functions, {short / len(lengths):.1%} short; longest: {sorted(lengths)[-3:]}")

    long = {f"{path}: {name}": length for length, path, name in lengths if length > FUNCTION_LINES}
    assert {name: length for name, length in long.items() if length > LONG_FUNCTIONS.get(name, 0)} == {}
    assert LONG_FUNCTIONS.keys() - long.keys() == set(), "these are short now: take them off the list"
    assert short / len(lengths) >= SHORT_SHARE


def test_package_init_files_import_no_other_package() -> None:
    """`__init__.py` holds a docstring and what its own package needs; nothing of another one."""
    tops = {name.partition(".")[0] for name in modules()}
    for name, path in modules().items():
        if path.name == "__init__.py":
            ours = {line for line in imports(path) if line.partition(".")[0] in tops}
            assert all(line == name or line.startswith(f"{name}.") for line in ours), (name, ours)


def test_imports_are_absolute_and_annotations_are_lazy() -> None:
    """One way to name a module, and no annotation is evaluated at import."""
    for path in modules().values():
        nodes = list(ast.walk(parsed(path)))
        assert not [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level], shown(path)
        has_code = any(not isinstance(node, ast.Expr) for node in parsed(path).body)
        assert not has_code or "__future__.annotations" in imports(path), shown(path)
