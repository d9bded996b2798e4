"""What must not lie in the tree, and what the Makefile must offer."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.architecture.tree import ROOT, files, shown

VERBS = (
    "install",
    "run",
    "test",
    "check",
    "bench",
    "fuzz",
    "mutants",
    "nightly",
    "dist",
    "services",
    "services-stop",
    "coprocessor",
    "fmt",
    "clean",
    "help",
)
SELF = "tests/architecture/test_tree.py"

# Written in pieces, so that this file does not find itself.
LATER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
PLACES = re.compile(r"(?<![\w.~$}])/(?:work|root|home/\w+|Users/\w+)/\w")
NOT_RUN = re.compile(r"@?pytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip)\b|unittest\.skip|\bSkipTest\b")
PAUSES = re.compile(r"\btime\.sleep" r"\(|from time import .*\bsleep\b")
FRAGMENT = re.compile(r"[A-Za-z0-9-]+\.(feature|bugfix|perf|removal|doc|misc)\.md")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    found = {}
    for path in files():
        try:
            found[shown(path)] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    found.pop(SELF)
    return found


def _lines(texts: dict[str, str], pattern: re.Pattern[str], suffixes: tuple[str, ...] = ("",)) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts.items()
        if name.endswith(suffixes)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_is_put_off_in_a_comment(texts: dict[str, str]) -> None:
    """What is not done stands in docs/mission.md, where somebody looks."""
    assert _lines(texts, LATER, (".py", ".pyx", ".pxd", ".sh", ".toml", ".cfg", ".c")) == []


def test_no_file_names_a_place_of_one_machine(texts: dict[str, str]) -> None:
    """A clone works wherever it lies."""
    assert _lines(texts, PLACES) == []


def test_no_test_can_pass_by_not_running(texts: dict[str, str]) -> None:
    """Skipped and expected to fail both count as not run: slow tests live in tests/nightly."""
    assert _lines({name: text for name, text in texts.items() if name.startswith("tests/")}, NOT_RUN, (".py",)) == []


def test_no_unit_test_sleeps(texts: dict[str, str]) -> None:
    """A pause is too short on a busy machine and too long on a quiet one: clocks are set, threads are waited for by events."""
    assert (
        _lines({name: text for name, text in texts.items() if name.startswith("tests/unit/")}, PAUSES, (".py",)) == []
    )


def test_nothing_needs_the_folder_beside_the_checkout(texts: dict[str, str]) -> None:
    """What the project uses of other folders was copied into it."""
    outside = re.compile(r"\.\./" + "shared")

    assert _lines(texts, outside) == []


def test_make_help_lists_every_verb() -> None:
    """A newcomer asks `make help`."""
    command = ["make", "--no-print-directory", "help"]  # this test may itself run under `make test`
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    listed = [line.split()[0] for line in done.stdout.splitlines()]

    assert set(listed) >= set(VERBS)
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert declared is not None
    assert set(declared[1].split()) == set(listed)


def test_every_script_that_a_verb_calls_exists() -> None:
    """A verb that names a missing file fails only when somebody needs it."""
    named = re.findall(r"\b(?:ops|tests)/[\w/]+\.(?:py|sh)\b", (ROOT / "Makefile").read_text())

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_ci_calls_the_one_verb() -> None:
    """What CI runs, a person can run."""
    assert "make test" in (ROOT / ".ci/run").read_text()


def test_change_fragments_are_well_named() -> None:
    """`<id>.<kind>.md`, so that a release can sort them."""
    found = [path.name for path in (ROOT / "docs/changes").iterdir() if path.name != "README.md"]

    assert [name for name in found if not FRAGMENT.fullmatch(name)] == []
