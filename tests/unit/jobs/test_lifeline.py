"""`iothub_spark.lifeline` and `iothub_spark.__main__`: a job ends with whoever started it, and says what it lacks."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from iothub_spark import __main__ as program

HOLDING = (
    "import signal\nfrom iothub_spark import lifeline\nlifeline.hold()\nprint('ready', flush=True)\nsignal.pause()\n"
)


@pytest.mark.parametrize(("is_leader", "code"), [(True, -9), (False, 1)])
def test_process_ends_when_nobody_holds_the_other_end(is_leader: bool, code: int) -> None:
    """What was written does not matter; the whole group ends where it is the process's own: a shell's is not."""
    holding = subprocess.Popen(
        [sys.executable, "-c", HOLDING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=is_leader,
    )
    assert holding.stdout is not None
    assert holding.stdout.readline() == b"ready\n"

    holding.communicate(b"hello", timeout=20)  # closes standard input

    assert holding.returncode == code


def missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import_ = builtins.__import__

    def refuse(
        wanted: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> object:
        if wanted == "iothub_spark.main":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_(wanted, globals_, locals_, fromlist or (), level)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_missing_package_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another Python than the command's may lack it: `spark.python`."""
    missing(monkeypatch, "pyspark.sql")

    assert program.run(["usage", "--spec", "x"]) == 2

    said = json.loads(capsys.readouterr().out)
    assert (said["event"], said["kind"]) == ("failed", "config")
    assert said["text"] == f"pyspark.sql is not installed for {sys.executable}: pip install 'iothub[spark]'"


def test_missing_module_of_ours_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "iothub_spark.main")

    with pytest.raises(ModuleNotFoundError):
        program.run(["usage", "--spec", "x"])
