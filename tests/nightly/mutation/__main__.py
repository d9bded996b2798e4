"""`make mutants`: does a test fail for every small change of the code that decides who may do what, and of what keeps queues apart?

`python -m tests.nightly.mutation [--list] [PART-OF-A-PATH[:FIRST-LAST] ...]` tries the modules of modules.toml, all or those that are named,
by their plain twins. A survivor that is not in equivalent.toml fails the run, and so does an entry there that no longer applies.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PLAIN = {"IOTHUB_PURE_PYTHON": "1", "PYTHONHASHSEED": "0"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="only modules whose path contains this; :FIRST-LAST only these lines"
    )
    parser.add_argument("--list", action="store_true", help="print the modules and stop")
    options = parser.parse_args()
    modules = tomllib.loads((HERE / "modules.toml").read_text())
    chosen = {path: lines for path in modules for part in options.parts or [""] if (lines := _lines(part, path))}
    if options.list or not chosen:
        print("\n".join(modules))
        return int(not options.list)
    if any(os.environ.get(name) != value for name, value in PLAIN.items()):
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.nightly.mutation", *sys.argv[1:]], {**os.environ, **PLAIN}
        )
    return _try(modules, chosen)


def _lines(part: str, path: str) -> range | None:
    name, _, lines = part.partition(":")
    if name not in path:
        return None
    first, _, last = lines.partition("-")
    return range(int(first or 1), int(last or first or 1_000_000) + 1)


def _try(modules: dict[str, list[str]], chosen: dict[str, range]) -> int:
    from tests.nightly.mutation import run

    entries = tomllib.loads((HERE / "equivalent.toml").read_text())["equivalent"]
    wrong = [
        f"equivalent.toml: {entry['path']} is not in modules.toml" for entry in entries if entry["path"] not in modules
    ]
    run.prepare()
    for path, lines in chosen.items():
        began = time.monotonic()
        try:
            ended = run.try_mutants(
                run.Target(path, tuple(modules[path])), lambda mutant, lines=lines: mutant.line in lines
            )
        except run.BrokenRunError as error:
            wrong.append(str(error))
            continue
        known = [entry for entry in entries if entry["path"] == path]
        survivors = [mutant for mutant, outcome in ended if outcome == run.SURVIVED]
        equivalent = [mutant for mutant in survivors if any(_is_meant(entry, mutant) for entry in known)]
        unknown = [mutant for mutant in survivors if mutant not in equivalent]
        counts = Counter(outcome for _, outcome in ended)
        print(
            f"{path}: {len(ended)} mutants, {counts[run.KILLED]} killed, {counts[run.TIMED_OUT]} timed out, "
            f"{len(equivalent)} equivalent, {len(unknown)} survived, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        wrong += [f"{path}:{mutant.line}: survived: {mutant.before}  ->  {mutant.after}" for mutant in unknown]
        if lines == range(1, 1_000_001):
            wrong += [
                f"equivalent.toml: {path}: no survivor is {entry['before']}  ->  {entry['after']}"
                for entry in known
                if not any(_is_meant(entry, mutant) for mutant in survivors)
            ]
    print("\n".join(wrong))
    return int(bool(wrong))


def _is_meant(entry: dict[str, Any], mutant: Any) -> bool:
    return (entry["function"], entry["before"], entry["after"]) == (mutant.function, mutant.before, mutant.after)


if __name__ == "__main__":
    sys.exit(main())
