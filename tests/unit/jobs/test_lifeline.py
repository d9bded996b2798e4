"""`iothub_spark.lifeline` and `iothub_spark.__main__`: a job ends with whoever started it, and says what it lacks."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from iothub_spark import __main__ as program
from iothub_spark import lifeline

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


def lines(*written: bytes) -> int:
    """Return a pipe's end from which these can be read; its other end stays open."""
    reader, writer = os.pipe()
    for octets in written:
        os.write(writer, octets)
    return reader


def test_process_ends_when_its_time_has_passed() -> None:
    """Whoever started it has stood still since; the last time counts, also a line of which a part comes later."""
    moments = iter((0.0, 0.0, 49.999, 50.0))

    why = lifeline.wait_for_end(lines(b"45000\n5", b"0000\n"), lambda: next(moments), 0.0)

    assert "renews its lease no more" in why
    assert list(moments) == []


@pytest.mark.parametrize("octets", [b"what?\n", b"\n", b"1" * 5000])
def test_line_that_is_no_time_is_passed_over(octets: bytes) -> None:
    moments = iter((0.0, 0.0, 44.0, 45.0))

    lifeline.wait_for_end(lines(octets, b"\n45000\n"), lambda: next(moments), 0.0)

    assert list(moments) == []


def test_process_says_why_it_ends() -> None:
    """The run's log has it as its last line."""
    holding = subprocess.Popen(
        [sys.executable, "-c", HOLDING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    _, said = holding.communicate(b"1\n", timeout=20)

    assert said.endswith(b": the job ends itself\n")


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
