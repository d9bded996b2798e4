"""No module imports itself by way of others: imports for type checking and the C types of `.pxd` and `.pyx` count as well.

Two modules that need each other's types are one module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pytest

from tests.architecture.tree import compiled_folders, imports, modules

# Circles that are still there. The list may only shrink: take away what is gone.
CIRCLES: frozenset[frozenset[str]] = frozenset()

_CYTHON_IMPORT = re.compile(r"^\s*from\s+([\w.]+)\s+c?import\b", re.MULTILINE)

Graph = Mapping[str, Iterable[str]]


def _graph() -> dict[str, set[str]]:
    """Return for every module of the distribution which others it imports."""
    graph = {name: set(imports(path)) for name, path in modules().items()}
    for package, folder in compiled_folders().items():
        for path in (*folder.glob("*.pxd"), *folder.glob("*.pyx")):
            graph.setdefault(f"{package}.{path.stem}", set()).update(_CYTHON_IMPORT.findall(path.read_text()))
    return {name: {other for other in found if other in graph and other != name} for name, found in graph.items()}


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead.extend(graph[name])
    return found


def _circles(graph: Graph) -> set[frozenset[str]]:
    reachable = {name: _reachable(graph, name) for name in graph}
    return {
        frozenset(other for other in found if name in reachable[other])
        for name, found in reachable.items()
        if name in found
    }


def test_no_module_is_in_a_new_circle_of_imports() -> None:
    """A circle has no bottom: whoever reads one of its modules must read them all."""
    found = _circles(_graph())

    assert {tuple(sorted(circle)) for circle in found - CIRCLES} == set()
    assert CIRCLES - found == set(), "these are open now: take them off the list"


def test_message_plane_has_no_circle() -> None:
    """Neither between its sources nor between its C types."""
    graph = {name: found for name, found in _graph().items() if name.startswith("iothub.engine.")}

    assert {"iothub.engine.state", "iothub.engine.poller", "iothub.engine.syscalls"} <= graph.keys()
    assert "iothub.engine.syscalls" in graph["iothub.engine.poller"]
    assert _circles({name: found & graph.keys() for name, found in graph.items()}) == set()


@pytest.mark.parametrize(
    ("graph", "circles"),
    [
        ({"a": "b", "b": "c", "c": ""}, set()),
        ({"a": "b", "b": "a", "c": "a"}, {frozenset("ab")}),
        ({"a": "b", "b": "c", "c": "a", "d": "e", "e": "d"}, {frozenset("abc"), frozenset("de")}),
    ],
)
def test_circles_are_found(graph: Graph, circles: set[frozenset[str]]) -> None:
    assert _circles(graph) == circles
