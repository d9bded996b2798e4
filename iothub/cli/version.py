"""`iothub version`: the program, the twin of the message plane, the libraries.

Knows no data directory.
"""

from __future__ import annotations

import importlib.util
import platform
import sqlite3
from importlib import metadata

import click

from iothub.cli.app import App, Command

LIBRARIES = ("Twisted", "SQLAlchemy", "cryptography", "click", "structlog")
_TWIN_MODULE = "iothub.engine.router"
_COMPILED_SUFFIXES = (".so", ".pyd")


@click.command("version", cls=Command)
@click.pass_obj
def command(app: App) -> None:
    """Show the version, whether the message plane is compiled, and the versions of Python and the libraries.

    Example:
      iothub version -o json
    """
    facts = facts_of_program()
    if app.form in {"json", "jsonl"}:
        app.record(facts)
        return
    libraries = ", ".join(f"{name} {found}" for name, found in dict(library_versions()).items())
    app.record({**facts, "libraries": libraries})


def facts_of_program() -> dict[str, object]:
    """Return what runs here."""
    return {
        "name": "iothub",
        "version": program_version(),
        "twin": twin(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": platform.platform(),
        "libraries": library_versions(),
    }


def program_version() -> str:
    try:
        return metadata.version("iothub")
    except metadata.PackageNotFoundError:
        return "0+checkout"


def library_versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    return versions


def twin() -> str:
    """Return `compiled` or `plain`: which twin of the message plane is imported."""
    found = importlib.util.find_spec(_TWIN_MODULE)
    is_compiled = found is not None and str(found.origin).endswith(_COMPILED_SUFFIXES)
    return "compiled" if is_compiled else "plain"
