"""The source tree as the architecture tests see it: files, modules, imports, functions. Reads, never imports."""

from __future__ import annotations

import ast
import configparser
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILED = (
    "iothub.engine",
    "iothub.peers",
    "iothub_services",
    "iothub_services.hbase",
    "iothub_services.queues",
    "iothub_services.queues.hbase",
    "iothub_services.queues.journal",
    "iothub_services.queues.redis",
    "iothub_services.queues.remote",
    "iothub_services.queues.sqlite",
    "iothub_services.quota",
    "iothub_services.retained",
    "iothub_tenants.broker",
    "iothub_tenants.control",
)  # packages with a plain twin, as setup.py has them
NOT_OURS = frozenset(("__pycache__", "node_modules", "build", "dist", "bench-results"))
BINARY = frozenset((".so", ".pyc", ".bin", ".png", ".db"))


@cache
def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def listed(section: str, option: str) -> list[str]:
    """Return the lines of a setup.cfg option."""
    return [line.strip() for line in setup()[section][option].splitlines() if line.strip()]


def package_dirs() -> dict[str, Path]:
    """Return top package -> its folder, as setup.cfg says."""
    pairs = [line.split("=") for line in listed("options", "package_dir")]
    return {name.strip(): ROOT / folder.strip() for name, folder in pairs}


@cache
def modules() -> dict[str, Path]:
    """Return every module of the distribution: dotted name -> file (`.py` only)."""
    found: dict[str, Path] = {}
    for top, folder in package_dirs().items():
        for path in sorted(folder.rglob("*.py")):
            if not NOT_OURS.isdisjoint(path.parts):
                continue
            parts = [top, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def imports(path: Path) -> frozenset[str]:
    """Return every dotted name that a file imports, anywhere in it: modules, and what is taken from them."""
    names: set[str] = set()
    for node in _statements(parsed(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def _statements(module: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement, those within others, too, and no expression: of ten nodes nine are expressions."""
    ahead: list[ast.AST] = [module]
    while ahead:
        node = ahead.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, field, None)
            if isinstance(found, list):
                ahead.extend(found)


def files(*suffixes: str) -> Iterator[Path]:
    """Walk every text file of the checkout that is ours (`suffixes`: only those)."""
    for folder, names, found in os.walk(ROOT):
        names[:] = sorted(
            name for name in names if name not in NOT_OURS and (not name.startswith(".") or name == ".ci")
        )
        for name in sorted(set(found) - {".git"}):  # a file in a worktree of git's
            path = Path(folder) / name
            if path.suffix not in BINARY and (not suffixes or path.suffix in suffixes):
                yield path


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every function of a file with its length in lines, decorators and docstring included."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield node.name, (node.end_lineno or node.lineno) - first + 1


def compiled_folders() -> dict[str, Path]:
    """Return the compiled packages: dotted name -> folder."""
    tops = package_dirs()
    return {name: tops[name.partition(".")[0]].parent.joinpath(*name.split(".")) for name in COMPILED}
