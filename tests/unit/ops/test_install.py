"""`make install` and `make run`: what they say while they work, and when they cannot."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ops import install

OUTPUT = """[1/2] Cythonizing iothub/engine/a.py[2/2] Cythonizing iothub/engine/b.py
building 'iothub.engine.a' extension
gcc -O2 ...
building 'iothub.engine.b' extension
"""


def test_every_step_has_the_seconds_since_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    """A reader of a log sees where the time goes."""
    install.Steps().say("installing the build tools")

    assert capsys.readouterr().out == "[   0 s] installing the build tools\n"


def test_without_a_terminal_progress_is_said_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of a build server gets a line in ten seconds, not one for each module."""
    now = iter([100.0, 112.0, 113.0, 123.0])
    monkeypatch.setattr(install.time, "monotonic", lambda: next(now))
    steps = install.Steps()

    for count in range(3):
        steps.say(f"{count} modules", is_progress=True)

    assert capsys.readouterr().out == "[  12 s] 0 modules\n[  23 s] 2 modules\n"


def test_progress_counts_what_is_translated_and_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cython writes two of its lines without a break between them."""
    said: list[str] = []
    monkeypatch.setattr(install.Steps, "say", lambda self, text, *, is_progress=False: said.append(text))

    install.follow(install.Steps(), io.StringIO(OUTPUT), io.StringIO())

    assert said == [
        "compiling: 1 of 2 modules translated to C",
        "compiling: 2 of 2 modules translated to C",
        "compiling: 1 of 2 modules",
        "compiling: 2 of 2 modules",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: Retrying (...) NewConnectionError('...: Failed to establish a new connection: [Errno 111] Connection refused')",
        "NameResolutionError(...): Failed to resolve 'pypi.org' ([Errno -3] Temporary failure in name resolution)",
        "ProxyError('Cannot connect to proxy.')",
    ],
)
def test_index_that_cannot_be_reached_is_named_with_the_way_out(line: str) -> None:
    """Not pip's complaint that no version satisfies the requirement."""
    with pytest.raises(SystemExit) as refusal:
        install.require(1, f"{line}\nERROR: No matching distribution found for twisted")

    text = str(refusal.value)
    assert "the package index cannot be reached" in text
    assert "PIP_FIND_LINKS" in text
    assert "run make again" in text


def test_other_failures_of_pip_are_shown() -> None:
    """The last lines say what it was."""
    with pytest.raises(SystemExit, match="no space left"):
        install.require(2, "first\nno space left on device")


def test_missing_compiler_and_headers_are_named_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The plain twin is announced, not discovered."""
    monkeypatch.setenv("CC", "no-such-compiler -pthread")
    without_compiler = install.missing_for_compiling()
    monkeypatch.setenv("CC", "sh")
    monkeypatch.setattr(install.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})

    assert without_compiler == "there is no C compiler (no-such-compiler)"
    assert install.missing_for_compiling() == "the Python headers are missing"
