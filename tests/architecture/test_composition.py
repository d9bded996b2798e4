"""Nothing is set on a part of the hub after its construction: who needs something gets it by the constructor, who changes something calls a verb."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from iothub.hub import parts
from iothub.hub.composition.control import PlaneDependencies, Planes
from iothub_tenants.broker.broker import Shared
from iothub_tenants.broker.hub import Hub
from tests.architecture.tree import imports, modules, parsed, shown

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

# Fields that are None at first and get an argument of a later call: (module, class, field) -> why that is no part handed in late.
STATE_THAT_BEGINS_AS_NONE = {
    ("iothub.dashboard.checked", "Checked", "_asked"): "what a form has sent to be checked, if that still stands",
    ("iothub.hub.late", "LateBound", "_part"): "the one place for real circles",
    ("iothub.hub.monitoring.metering", "_Account", "broker"): "a tenant's broker, which comes and goes",
    ("iothub.hub.hub_process", "HubProcess", "_failure"): "what ended the hub",
    ("iothub.net.hub_reactor", "HubReactor", "_plane"): "the reader that waits for all, while there is one",
    ("iothub.peers.announced", "Announced", "_sender"): "the hub whose messages are being delivered, none between them",
    ("iothub.peers.cluster_clock", "ClusterClock", "_reference"): "a time",
    ("iothub.peers.cluster_clock", "ClusterClock", "_third"): "a time",
    ("iothub.peers.connection", "Connection", "link"): "which link it is of, once its HELLO has said so",
    ("iothub.peers.dialing", "_Dial", "_channel"): "the socket, once it is connected",
    ("iothub.peers.directory", "Directory", "_view"): "which hubs there are, none while this one is alone",
    ("iothub.peers.directory_owner", "DirectoryOwner", "_view"): "the same",
    ("iothub.peers.will_copies", "WillCopies", "_view"): "which hubs there are, none before there was another one",
    ("iothub.peers.wire", "PeerConnection", "_owner"): "who hears of it, until it is lost; both are made in one call",
    ("iothub_services.auth.change_watermark", "ChangeWatermark", "_looked_at"): "a time",
    ("iothub_services.hbase.connection", "Connection", "_wire"): "the socket, once it is connected",
    ("iothub_services.state.memory.checkpoints", "MemoryCheckpoints", "_pointer"): "what is stored",
    ("iothub_tenants.broker.client_contexts", "ClientContext", "session"): "the client's session, while it has one",
    ("iothub_services.streams.kafka.batch", "_Place", "_whole"): "a batch that is sent again",
    ("iothub_services.streams.kafka.receiver", "KafkaReceiver", "_on_page"): "the port's start: whom the thread calls",
    ("iothub_services.streams.kafka.sender", "KafkaSender", "_on_answers"): "the port's start: whom the thread calls",
    ("iothub_tenants.background.following", "AccountFollower", "_watermark"): "a position in the account change log",
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
        if isinstance(node, ast.Call) and _name(node.func) in ("setattr", "object.__setattr__"):
            found.add((ast.unparse(node.args[0]), ast.unparse(node.args[1])))
    return frozenset((base, attribute) for base, attribute in found if base != "self")


def _name(node: ast.expr) -> str:
    """Return a name, or a name and one attribute, as it is written; nothing for all else, which takes long to write."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


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


def _arguments_stored_late(path: Path) -> Iterator[tuple[str, str]]:
    """Yield class and field where a method stores an argument in a field that the constructor has left None."""
    for owner in ast.walk(parsed(path)):
        if isinstance(owner, ast.ClassDef):
            yield from ((owner.name, field) for field in _stored_late(owner))


def _stored_late(owner: ast.ClassDef) -> set[str]:
    methods = [each for each in owner.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    empty = {
        field for method in methods if method.name == "__init__" for field, value in _stores(method) if _is_none(value)
    }
    return {
        field
        for method in methods
        if method.name != "__init__"
        for field, value in _stores(method)
        if field in empty and isinstance(value, ast.Name) and value.id in _arguments(method)
    }


def _stores(method: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield each field of `self` that is assigned, with its value."""
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for stored, value in pairs:
                if isinstance(stored, ast.Attribute) and _name(stored.value) == "self":
                    yield stored.attr, value


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _arguments(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {each.arg for each in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs)}


def test_no_part_is_handed_in_after_the_construction() -> None:
    """A method that stores its argument where the constructor left None is a setter by another name."""
    found = {
        (name, owner, field)
        for name, path in modules().items()
        if not name.startswith(("iothub.engine", "iothub.testing", "iothub.cli", "iothub.doctor", "iothub_spark"))
        for owner, field in _arguments_stored_late(path)
    }

    assert found - set(STATE_THAT_BEGINS_AS_NONE) == set()
    assert set(STATE_THAT_BEGINS_AS_NONE) - found == set(), "these are gone: take them off the list"


@pytest.mark.parametrize("name", ["start", "stop"])
def test_start_and_stop_make_no_part(name: str) -> None:
    """Both work with what `compose` has made: they call none of our classes, and hand none to somebody who does, but errors."""
    path = modules()[f"iothub.hub.{name}"]
    ours = {each.rpartition(".")[2] for each in imports(path) if each.startswith("iothub")}
    used = {
        child.id
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        for child in (node.func, *node.args, *(each.value for each in node.keywords))
        if isinstance(child, ast.Name)
    }

    assert {
        each for each in ours & used if each[0].isupper() and not each.isupper() and not each.endswith("Error")
    } == set()


def test_rule_knows_the_ways_to_hand_in_a_part() -> None:
    text = """
class Part:
    def __init__(self):
        self.a = self.b = None
        self.c: int | None = None
        self.d = 1
    def start(self, a, b, *, c, d):
        self.a, self.e = a, 1
        self.b = b
        self.c: int = c
        self.d = d
    def stop(self):
        self.a = None
"""
    (owner,) = ast.parse(text).body

    assert isinstance(owner, ast.ClassDef)
    assert _stored_late(owner) == {"a", "b", "c"}


def test_rule_knows_the_ways_to_assign() -> None:
    """A rule that sees nothing would hold everywhere."""
    ways = "a.x = 1\na.x += 1\na.x: int = 1\nb, (a.x, *a.y) = f()\nfor a.x in f(): pass\nwith f() as a.x: pass\ndel a.x"
    found = [ast.unparse(each) for node in ast.walk(ast.parse(ways)) for each in _assigned(node)]

    assert sorted(found) == ["a.x"] * 7 + ["a.y"]
    assert _is_part("self._parts.plane.turn")
    assert not _is_part("session")
