"""Fuzz every `fuzz_*.py` beside this file for a while: with atheris where it is installed, else with the harness's own loop.

Knows no target; a new harness file is found by its name. An input that breaks an invariant is kept under `crashers/` and ends the run.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from typing import cast

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.fuzz.harness import Harness, crashers, fuzz, keep_crasher  # noqa: E402 - the path comes first


def load(name: str) -> Harness:
    return cast(Harness, importlib.import_module(f"tests.fuzz.{name}"))


def run_plain(name: str, seconds: float) -> int:
    """Fuzz one target with the loop of `harness`; the exit code says whether its invariant held."""
    harness = load(name)
    seed = random.SystemRandom().randrange(1 << 32)
    outcome = fuzz(harness.target, (*harness.SEEDS, *crashers(name)), seed=seed, seconds=seconds)
    print(f"{name}: {outcome.runs} runs, seed {seed}, slowest {outcome.slowest_s * 1000:.1f} ms")
    if outcome.crasher is None:
        return 0
    print(f"{name}: {type(outcome.error).__name__}: {outcome.error}; kept as {keep_crasher(name, outcome.crasher)}")
    return 1


def run_atheris(name: str, seconds: float) -> None:
    """Fuzz one target with coverage feedback; does not return."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["iothub"]):
        harness = load(name)
    corpus = HERE.parents[1] / "build" / "fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate((*harness.SEEDS, *crashers(name))):
        (corpus / f"seed-{number:04}").write_bytes(seed)
    kept = HERE / "crashers" / name
    kept.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={int(seconds)}", "-max_len=65536", f"-artifact_prefix={kept}/", str(corpus)]
    atheris.Setup([sys.argv[0], *options], harness.target)
    atheris.Fuzz()


def main() -> int:
    """Run all targets, or one with `--one`, each in its own process."""
    parser = argparse.ArgumentParser(description="Fuzz every decoder for a while.")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each target")
    parser.add_argument("--one", help="the name of one target, without .py")
    given = parser.parse_args()
    if given.one is None:
        names = sorted(path.stem for path in HERE.glob("fuzz_*.py"))
        command = [sys.executable, __file__, "--seconds", str(given.seconds), "--one"]
        return max(subprocess.run([*command, name], check=False).returncode for name in names)
    if importlib.util.find_spec("atheris") is None:
        return run_plain(given.one, given.seconds)
    run_atheris(given.one, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
