"""Write docs/conformance.md: for each normative statement of MQTT 5.0 and 3.1.1 where it is obeyed and where it is proved.

Knows no statement by itself: they are in catalogue.txt, citations are found in the sources, reasons for doing without in waivers.toml.

    python tests/conformance/table.py            write the table, print the counts
    python tests/conformance/table.py --shrink   first take statements off "not yet" that are cited and proved by now
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CATALOGUE = HERE / "catalogue.txt"
WAIVERS = HERE / "waivers.toml"
TABLE = ROOT / "docs" / "conformance.md"

CODE = ("iothub", "services", "tenants", "migrations")
TESTS = ("tests", "iothub/testing")
SUFFIXES = {".py", ".pyx", ".pxd", ".js", ".sh"}
NOT_YET = "not yet"
CLIENT = "client"
_CITATION = re.compile(r"\[(MQTT3?-\d[^\]\s]*)\]")
_STATEMENT = re.compile(r"(MQTT3?-[\d.]+-\d+) (server|client|both): (.+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of the catalogue."""

    id: str
    binds: str
    asks: str


@dataclass(frozen=True, slots=True)
class Citations:
    """Statement id -> files that cite it, in code and in tests."""

    code: Mapping[str, list[str]]
    tests: Mapping[str, list[str]]


def read_catalogue() -> list[Statement]:
    lines = (line for line in CATALOGUE.read_text().splitlines() if line and not line.startswith("#"))
    found = [(_STATEMENT.fullmatch(line), line) for line in lines]
    broken = [line for match, line in found if match is None]
    if broken:
        raise ValueError(f"catalogue.txt: not a statement: {broken[0]!r}")
    return [Statement(*match.groups()) for match, _ in found if match is not None]


def read_waivers() -> tuple[int, dict[str, str]]:
    """Return how many "not yet" are allowed, and id -> reason."""
    held = tomllib.loads(WAIVERS.read_text())
    return held["not_yet_maximum"], held["waivers"]


def _sources(folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and "node_modules" not in path.parts and HERE not in path.parents:
                yield path


def find_citations() -> Citations:
    tests = set(_sources(TESTS))
    code = [path for path in _sources(CODE) if path not in tests]
    return Citations(_cited(code), _cited(sorted(tests)))


def _cited(paths: list[Path]) -> dict[str, list[str]]:
    cited: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        for statement in sorted(set(_CITATION.findall(path.read_text(errors="replace")))):
            cited[statement].append(path.relative_to(ROOT).as_posix())
    return dict(cited)


def open_not_yet(waivers: Mapping[str, str], citations: Citations) -> list[str]:
    """Return the statements that are really not there yet: waived as such and proved by no test."""
    return [each for each, reason in waivers.items() if reason == NOT_YET and each not in citations.tests]


def shrink() -> None:
    """Take every statement off the waivers that a test proves by now, and lower the maximum to what is left."""
    _, waivers = read_waivers()
    citations = find_citations()
    proved = [each for each, reason in waivers.items() if reason in (NOT_YET, CLIENT) and each in citations.tests]
    kept = {each: reason for each, reason in waivers.items() if each not in proved}
    write_waivers(kept, len(open_not_yet(kept, citations)))


def write_waivers(waivers: Mapping[str, str], maximum: int) -> None:
    head = [
        "# Statements that we do not cite and prove, each with its reason:",
        '#   "client"   it binds clients only',
        '#   "not yet"  it is not proved yet; there may be at most `not_yet_maximum` of them, a number that only ever shrinks',
        "#              (python tests/conformance/table.py --shrink)",
        "# Any other text says why the statement does not apply.",
        "",
        f"not_yet_maximum = {maximum}",
        "",
        "[waivers]",
    ]
    order = [statement.id for statement in read_catalogue()]
    lines = [f'"{each}" = "{waivers[each]}"' for each in order if each in waivers]
    WAIVERS.write_text("\n".join((*head, *lines, "")))


def _files(paths: list[str]) -> str:
    shown = ", ".join(f"`{path}`" for path in paths[:3])
    return shown + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _row(statement: Statement, waivers: Mapping[str, str], citations: Citations) -> str:
    code = citations.code.get(statement.id, [])
    tests = citations.tests.get(statement.id, [])
    reason = waivers.get(statement.id, "")
    proof = _files(tests) if tests else f"*{reason or 'missing'}*"
    return f"| {statement.id} | {statement.asks} | {_files(code)} | {proof} |"


def render() -> str:
    statements = read_catalogue()
    maximum, waivers = read_waivers()
    citations = find_citations()
    left = len(open_not_yet(waivers, citations))
    lines = [
        "# Conformance",
        "",
        "Every numbered normative statement of MQTT 5.0 (`MQTT-`) and MQTT 3.1.1 (`MQTT3-`), in our words: where it is obeyed, which test proves it.",
        "In place of a test stands, in italics, why there is none: *client* binds clients only, *not yet* is work to do.",
        "This page is written by `python tests/conformance/table.py`; a test keeps the number of *not yet* from growing.",
        "",
        f"{len(statements)} statements, {sum(each.id in citations.tests for each in statements)} proved, {left} not yet (at most {maximum} allowed).",
        "",
        "| statement | asks | obeyed in | proved in |",
        "| --- | --- | --- | --- |",
    ]
    lines += [_row(statement, waivers, citations) for statement in statements]
    return "\n".join((*lines, ""))


def main() -> None:
    if "--shrink" in sys.argv[1:]:
        shrink()
    TABLE.write_text(render())
    citations = find_citations()
    untested = sorted(set(citations.code) - set(citations.tests))
    print(f"wrote {TABLE.relative_to(ROOT)}; cited in code but in no test: {', '.join(untested) or 'none'}")


if __name__ == "__main__":
    main()
