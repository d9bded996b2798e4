"""Each fuzz target holds its invariant for its seeds, for a bounded number of mutations, and for every input that once broke it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import cast

import pytest

from tests.fuzz.harness import CRASHERS, Harness, crashers, fuzz, keep_crasher

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("fuzz_*.py"))


def _load(name: str) -> Harness:
    return cast(Harness, importlib.import_module(f"tests.fuzz.{name}"))


@pytest.mark.parametrize("name", NAMES)
def test_target_holds_its_invariant(name: str) -> None:
    """The same mutations on every machine: a failure here can be repeated."""
    harness = _load(name)

    outcome = fuzz(harness.target, harness.SEEDS, seed=1883, runs=1_500)

    assert outcome.error is None, f"{outcome.crasher!r}: {outcome.error!r}"


@pytest.mark.parametrize("name", NAMES)
def test_target_holds_for_former_crashers(name: str) -> None:
    """What was found once is never lost again."""
    harness = _load(name)

    for data in crashers(name):
        harness.target(data)


@pytest.mark.parametrize("name", NAMES)
def test_target_states_its_invariant_on_line_one(name: str) -> None:
    """The first line of a harness says what must hold."""
    first_line = (_load(name).__doc__ or "").splitlines()[0]

    assert first_line.endswith(".")
    assert len(first_line) > 40


def test_loop_finds_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop itself works: a target that dislikes a byte is caught, and the input kept."""
    monkeypatch.setattr("tests.fuzz.harness.CRASHERS", tmp_path)

    def dislikes_ff(data: bytes) -> None:
        assert b"\xff" not in data

    outcome = fuzz(dislikes_ff, [b"abc"], seed=1, runs=10_000)

    assert outcome.crasher is not None
    assert b"\xff" in outcome.crasher
    assert keep_crasher("x", outcome.crasher).read_bytes() == outcome.crasher
    assert crashers("x") == [outcome.crasher]
    assert tmp_path != CRASHERS
