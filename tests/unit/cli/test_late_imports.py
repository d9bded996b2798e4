"""What the command line loads before it knows what is asked: help texts come at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from iothub.cli.main import NOUNS

HEAVY = ("sqlalchemy", "twisted", "structlog", "argon2", "prometheus_client", "asyncio", "fastapi")
LOADS_MORE = {"job", "db", "hbase", "doctor"}  # their verbs are made of what they load
LIGHT = [module for module, _ in NOUNS.values() if module not in LOADS_MORE]


def loaded_by(module: str) -> set[str]:
    """Import a noun's module in a process of its own; return which heavy libraries are loaded then."""
    text = f"import sys, iothub.cli.main, iothub.cli.{module}; print(*(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_help_texts_load_no_database_library_and_no_reactor() -> None:
    """All in one process: each would show."""
    text = "import sys, iothub.cli.entry, iothub.base.log_level, iothub.cli.main, importlib\n" + "".join(
        f"importlib.import_module('iothub.cli.{module}')\n" for module in LIGHT
    )
    done = subprocess.run(
        [sys.executable, "-c", text + f"print(*(set(sys.modules) & set({HEAVY!r})))"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == []


@pytest.mark.parametrize("module", sorted(LOADS_MORE))
def test_nouns_that_load_more_are_known(module: str) -> None:
    """One that no longer does belongs to the others."""
    assert loaded_by(module)
