"""Nothing is set on a part of the hub after its construction: who needs something gets it by the constructor, who changes something calls a verb."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

from iothub.hub import parts
from iothub.hub.compose_control import PlaneDependencies, Planes
from iothub_tenants.broker.broker import Shared
from iothub_tenants.broker.hub import Hub
from tests.architecture.tree import modules, parsed, shown

# Assignments to an attribute of something that only has the name of a part: (file, base) -> what it is.
NAMED_LIKE_A_PART = {
    ("services/iothub_services/quota/shared/grants.py", "waiting"): "a request that waits for units",
    (
        "tenants/iothub_tenants/broker/allowance.py",
        "plane",
    ): "a tenant's plane: its allowance puts changed limits there",
    ("tenants/iothub_tenants/broker/allowance.py", "self.plane"): "as above",
    ("tenants/iothub_tenants/broker/broker.py", "self.plane"): "a tenant's plane: its broker counts the sinks in it",
}


def _assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement assigns."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        targets = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        targets = [node.optional_vars]
    for target in targets:
        yield from (each for each in _parts_of(target) if isinstance(each, ast.Attribute))


def _parts_of(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _parts_of(each)
    elif isinstance(target, ast.Starred):
        yield from _parts_of(target.value)
    else:
        yield target


@cache
def _from_outside(path: Path) -> frozenset[tuple[str, str]]:
    """Return base and attribute of each assignment to an attribute whose object is not `self`, `setattr` included."""
    found = set()
    for node in ast.walk(parsed(path)):
        found.update((ast.unparse(each.value), each.attr) for each in _assigned(node))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "object.__setattr__"):
            found.add((ast.unparse(node.args[0]), ast.unparse(node.args[1])))
    return frozenset((base, attribute) for base, attribute in found if base != "self")


@cache
def _part_names() -> frozenset[str]:
    """Return the names under which the parts are known to those that use them. A `control` is the state of a session or connection."""
    made = (parts.Process, parts.Monitoring, parts.Stores, parts.Writers, parts.Control, parts.Sockets)
    return frozenset(
        field.name for each in (*made, PlaneDependencies, Planes, Shared, Hub) for field in fields(each)
    ) | {"parts"}


def _is_part(base: str) -> bool:
    """Whether a base such as `self._parts.plane.turn` is a part, or is reached through one."""
    return not _part_names().isdisjoint(name.removeprefix("_") for name in base.split("."))


def test_hub_assigns_no_attribute_of_another_object() -> None:
    """Who composes, starts, reloads and stops makes objects and calls them."""
    found = {
        (shown(path), base, attribute)
        for name, path in modules().items()
        if name.startswith("iothub.hub.")
        for base, attribute in _from_outside(path)
    }

    assert found == set()


def test_no_part_is_assigned_to_from_outside() -> None:
    """Nor by those that have got it: packet handlers, background tasks, services.

    The parts of the engine share their state among themselves; commands and the doctor have no hub.
    """
    found = {
        (shown(path), base)
        for name, path in modules().items()
        if not name.startswith(("iothub.engine", "iothub.testing", "iothub.cli", "iothub.doctor"))
        for base, _ in _from_outside(path)
        if _is_part(base)
    }

    assert found - set(NAMED_LIKE_A_PART) == set()
    assert set(NAMED_LIKE_A_PART) - found == set(), "these are gone: take them off the list"


def test_rule_knows_the_ways_to_assign() -> None:
    """A rule that sees nothing would hold everywhere."""
    ways = "a.x = 1\na.x += 1\na.x: int = 1\nb, (a.x, *a.y) = f()\nfor a.x in f(): pass\nwith f() as a.x: pass\ndel a.x"
    found = [ast.unparse(each) for node in ast.walk(ast.parse(ways)) for each in _assigned(node)]

    assert sorted(found) == ["a.x"] * 7 + ["a.y"]
    assert _is_part("self._parts.plane.turn")
    assert not _is_part("session")
