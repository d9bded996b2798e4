"""Every small change of the code that decides who may do what fails a test: `tests/nightly/mutation` has the modules and their tests."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.architecture.tree import ROOT

MODULES = tomllib.loads((ROOT / "tests/nightly/mutation/modules.toml").read_text())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", MODULES)
def test_no_mutant_survives(path: str) -> None:
    """One that does names the line and the change: it wants a test, or the line is not needed."""
    command = [sys.executable, "-m", "tests.nightly.mutation", path]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
