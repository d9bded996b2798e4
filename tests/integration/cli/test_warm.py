"""What tests run their commands with: processes of their own, forked from one that has loaded the program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import warm


def run(*words: str, told: str | None = None, timeout_s: float = 60.0, **environment: str) -> tuple[int, str, str]:
    return warm.run(words, told=told, environment={**os.environ, **environment}, timeout_s=timeout_s)


def test_command_has_arguments_files_and_an_exit_code_of_its_own(tmp_path: Path) -> None:
    """As if the program had been started."""
    data = str(tmp_path / "hub")

    assert run("--data-dir", data, "init")[0] == 0
    assert run("--data-dir", data, "tenant", "create", "acme")[0] == 0
    code, out, err = run("--data-dir", data, "device", "create", "acme", "d", "--password-stdin", told="secret")
    assert (code, out, err.splitlines()[0]) == (0, "", "created device acme/d")
    assert run("--data-dir", data, "-o", "json", "device", "list", "acme")[1].startswith("[")
    assert run("--data-dir", data, "tenant", "show", "nobody")[0] == 3


def test_environment_is_the_callers_and_leaves_with_the_process(tmp_path: Path) -> None:
    """The next command has its own."""
    config = ("--data-dir", str(tmp_path / "hub"), "config", "check")
    run("--data-dir", str(tmp_path / "hub"), "init")

    assert run(*config, IOTHUB_QUEUES__DRIVER="nobodys")[0] == 2
    assert run(*config)[0] == 0


def test_command_that_lasts_too_long_is_ended() -> None:
    """And the next one runs."""
    with pytest.raises(subprocess.TimeoutExpired):
        run("--version", timeout_s=0.0001)

    assert run("--version")[:2] == (0, "iothub 0.1.0\n")
