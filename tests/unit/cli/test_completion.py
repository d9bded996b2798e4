"""`iothub completion`: the lines are the shell's, and what they call answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.in_process.command import Result

SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize("shell", SHELLS)
def test_lines_of_each_shell_call_the_program(call: Callable[..., Result], shell: str) -> None:
    result = call("completion", shell)

    assert result.code == 0
    assert f"_IOTHUB_COMPLETE={shell}_complete" in result.out
    assert result.err == ""
    assert call("completion", shell, "-o", "json").json == {"shell": shell, "script": result.out}


def test_other_shell_is_refused_with_those_that_are_known(call: Callable[..., Result]) -> None:
    result = call("completion", "tcsh")

    assert (result.code, result.out) == (2, "")
    assert all(shell in result.err for shell in SHELLS)


def test_shell_of_the_lines_need_not_be_here(call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be made on another machine, such as in the building of a package."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert call("completion", "bash").err == ""


def test_bash_with_the_lines_completes_a_noun(call: Callable[..., Result], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    program = tmp_path / "iothub"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m iothub.cli "$@"\n')
    program.chmod(0o755)
    lines = f'{call("completion", "bash").out}\nCOMP_WORDS=(iothub tena) COMP_CWORD=1\n_iothub_completion iothub\necho "${{COMPREPLY[@]}}"'

    done = subprocess.run(
        [bash, "--norc", "-c", lines],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "tenant\n"
