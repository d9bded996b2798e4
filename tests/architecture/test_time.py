"""No test of the day depends on how quick a machine is: a limit of time is for what hangs, and speed is measured at night and by `make bench`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.tree import ROOT, parsed, shown

FOLDERS = ("behaviour", "integration", "scenarios", "services")
WAITING = re.compile(r"\buntil\(|\b(monotonic|perf_counter|time)\(\) -")
CLOCKS = frozenset(("monotonic", "perf_counter", "time"))


def sources() -> Iterator[Path]:
    """Yield the files that wait or ask a clock."""
    for folder in FOLDERS:
        for path in (ROOT / "tests" / folder).rglob("*.py"):
            if "node_modules" not in path.parts and WAITING.search(path.read_text(encoding="utf-8")):
                yield path


def is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def is_elapsed(node: ast.expr) -> bool:
    """A difference whose first term asks a clock: `time.monotonic() - began`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub) or not isinstance(node.left, ast.Call):
        return False
    asked = node.left.func
    return isinstance(asked, ast.Attribute) and asked.attr in CLOCKS


def bounded(node: ast.Assert) -> bool:
    """`assert <elapsed> < 5`: above is nothing else than a number."""
    if not isinstance(node.test, ast.Compare):
        return False
    terms = [node.test.left, *node.test.comparators]
    pairs = zip(terms, node.test.ops, terms[1:], strict=False)
    return any(isinstance(how, ast.Lt | ast.LtE) and is_elapsed(less) and is_number(more) for less, how, more in pairs)


def impatient(node: ast.AST) -> bool:
    """`until(fact, "what", 5)`: it has a patience of its own."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "until"
        and any(map(is_number, [*node.args[1:], *(keyword.value for keyword in node.keywords)]))
    )


def found(path: Path) -> list[str]:
    return [
        f"{shown(path)}:{node.lineno}"
        for node in ast.walk(parsed(path))
        if impatient(node) or (isinstance(node, ast.Assert) and bounded(node))
    ]


def test_no_limit_of_time_is_shorter_than_what_hangs() -> None:
    assert [line for path in sources() for line in found(path)] == []


def test_both_are_seen() -> None:
    """The rule finds what it is for."""
    lines = ast.parse('assert time.monotonic() - began < 5\nuntil(is_there, "it", 10)\nuntil(is_there, "it")\n').body

    assert isinstance(lines[0], ast.Assert)
    assert bounded(lines[0])
    assert [impatient(line.value) for line in lines[1:] if isinstance(line, ast.Expr)] == [True, False]
