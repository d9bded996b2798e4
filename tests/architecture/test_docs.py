"""Docs mirror code: what a page names exists, what is generated is up to date, and every capability stands on the mission page."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from iothub_services.metrics.alarms import AlarmName
from iothub_services.metrics.metrics import LOGIN_CAUSES
from tests.architecture.tree import ROOT, modules, parsed, shown

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
]
STATES = {"done", "partly", "not yet", "not ours"}
COUNTS = {"B": 75, "R": 29, "E": 16, "K": 14, "D": 20}
ADR_PARTS = ("Status", "Context", "Decision", "Consequences", "Compatibility", "Declined alternatives")

GENERATED = {  # written by programs, or elsewhere
    "docs/conformance.md",
    "docs/guide/hooks.md",
    "docs/reference/cli.md",
    "docs/reference/configuration.md",
    "docs/reference/quotas.md",
}

_PATH = re.compile(
    r"`((?:iothub|services|tenants|migrations|spark_pipelines|tests|ops|docs)/[\w./-]+|setup\.cfg|Makefile|pyproject\.toml)`"
)
_SECTION = re.compile(r"(docs/[\w/-]+\.md)#([\w-]+)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"`(\w+)\(\)`")
_MISSION_ROW = re.compile(r"^\| ([BREKD]\d+) \|(.*)\|$", re.MULTILINE)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _heading(line: str) -> str:
    return re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    return {_heading(line) for line in _text(page).splitlines() if line.startswith("#")}


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """A page that names a file that has moved sends its reader astray."""
    missing = [name for name in _PATH.findall(_text(page)) if not (ROOT / name).exists()]

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links between pages, and to headings in them."""
    lost = []
    for link in _LINK.findall(_FENCED.sub("", _text(page))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            lost.append(link)

    assert lost == []


def test_every_section_that_a_message_names_is_there() -> None:
    """`docs/guide/PAGE.md#SECTION` in the code is what an operator opens."""
    named = {found for path in modules().values() for found in _SECTION.findall(_text(path))}

    assert named
    assert [f"{page}#{anchor}" for page, anchor in sorted(named) if anchor not in _anchors(ROOT / page)] == []


def _steps(text: str) -> Iterator[str]:
    """Yield each step of a list with its continuation lines, and every other line by itself."""
    step = ""
    for line in text.splitlines():
        if line.startswith("   "):
            step += "\n" + line
        else:
            yield step
            step = line
    yield step


@pytest.mark.parametrize("page", sorted((DOCS / "flows").glob("*.md")), ids=shown)
def test_every_function_that_a_flow_names_is_in_a_file_of_its_step(page: Path) -> None:
    """`file.py`: `function()`: the function is defined in one of the files that the step names."""
    lost = []
    for step in _steps(_text(page)):
        files = [ROOT / name for name in _PATH.findall(step)]
        texts = "\n".join(_text(path) for path in files if path.is_file())
        lost += [name for name in _CALL.findall(step) if not re.search(rf"\bdef {name}\(", texts)]

    assert lost == []


def test_every_flow_of_the_design_has_its_page() -> None:
    """Start, CONNECT, SUBSCRIBE, both kinds of PUBLISH, from an event to a checkpoint, stop."""
    pages = {path.stem for path in (DOCS / "flows").glob("*.md")}

    assert pages == {
        "connect",
        "event_to_checkpoint",
        "publish_online",
        "publish_persistent",
        "subscribe",
        "start",
        "stop",
    }


def test_every_page_is_reachable_from_the_index() -> None:
    """A page that no page links to is read by nobody."""
    found: set[Path] = set()
    ahead = [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        links = _LINK.findall(_FENCED.sub("", _text(page)))
        ahead += [
            (page.parent / link.partition("#")[0]).resolve() for link in links if "://" not in link and link[0] != "#"
        ]

    fragments = {path for path in (DOCS / "changes").glob("*.md") if path.name != "README.md"}
    assert sorted(shown(path) for path in set(DOCS.rglob("*.md")) - found - fragments) == []


def test_architecture_page_draws_the_layers_of_setup_cfg() -> None:
    """Every module of the import contract stands in the drawing, in the same order."""
    contract = (ROOT / "setup.cfg").read_text().split("[importlinter:contract:layers]")[1].split("[")[0]
    names = re.findall(r"\biothub(?:_\w+)?(?:\.\w+)*", contract.split("layers =")[1])
    drawing = _text(DOCS / "architecture.md").split("## Layers")[1].split("```")[1]

    assert re.findall(r"\biothub(?:_\w+)?(?:\.\w+)*", drawing) == names


def test_architecture_page_names_every_package() -> None:
    """A newcomer finds each package on the page."""
    text = _text(DOCS / "architecture.md")
    packages = [path.parent for path in (ROOT / "services/iothub_services").glob("*/__init__.py")]

    assert [package.name for package in packages if package.name not in text] == []


def test_guide_names_every_alarm_and_every_cause_of_a_refused_login() -> None:
    """What a log line says can be looked up."""
    text = "".join(_text(page) for page in (DOCS / "guide").glob("*.md"))
    words = [*(alarm.word for alarm in AlarmName), *LOGIN_CAUSES]

    assert [word for word in words if f"`{word}`" not in text] == []


# --- the mission page


def test_table_of_what_is_down_names_alarms_that_there_are() -> None:
    """And the drivers that are a server's: what is down is looked up by its alarm."""
    page = _text(ROOT / "docs/guide/back-ends.md").partition("## What happens when one is down")[2]
    rows = [line for line in page.partition("What clients see of it:")[0].splitlines() if line.startswith("| ")][2:]
    named = {word for row in rows for word in re.findall(r"`([a-z]+_[a-z]+)`", row.split("|")[2])} - {"data_dir"}

    assert named <= {alarm.word for alarm in AlarmName}
    assert {"accounts_unreachable", "redis_unreachable", "quota_degraded", "streams_failed", "store_failed"} <= named


def test_every_id_stands_on_the_mission_page_once() -> None:
    """What is not there yet is said there, not left out."""
    ids = Counter(found for found, _ in _MISSION_ROW.findall(_text(DOCS / "mission.md")))
    expected = {f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)}

    assert expected - ids.keys() == set()
    assert ids.keys() - expected == set()
    assert {name for name, count in ids.items() if count > 1} == set()


def test_every_row_of_the_mission_page_has_state_files_and_tests() -> None:
    """Done means: a file, and a test that shows it."""
    for found, rest in _MISSION_ROW.findall(_text(DOCS / "mission.md")):
        state, what, where, by = (cell.strip() for cell in rest.split(" |"))
        assert state in STATES, found
        assert what, found
        if state == "done":
            assert _PATH.findall(where), found
            assert any(name.startswith("tests/") for name in _PATH.findall(by)), found


# --- generated pages


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    path = DOCS / "reference/generate.py"
    assert parsed(path)
    spec = importlib.util.spec_from_file_location("generate_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli", "metrics"])
def test_generated_page_is_up_to_date(generate: ModuleType, name: str) -> None:
    """Run `.venv/bin/python docs/reference/generate.py` after a change."""
    made: str = getattr(generate, f"{name}_page")()

    assert _text(DOCS / f"reference/{name}.md") == made


# --- decisions and prose


@pytest.mark.parametrize("page", sorted((DOCS / "adr").glob("0*.md")), ids=lambda page: page.stem)
def test_decision_has_all_its_parts(page: Path) -> None:
    """Status, context, decision, consequences, compatibility, declined alternatives; and it is listed."""
    text = _text(page)

    for part in ADR_PARTS:
        assert re.search(rf"^(?:## )?{part}(?::|$)", text, re.MULTILINE), part
    assert text.startswith(f"# {page.name[:4]}: ")
    assert page.name in _text(DOCS / "adr/README.md")


def test_decisions_are_numbered_without_gaps() -> None:
    """0001, 0002, ..."""
    numbers = [int(page.name[:4]) for page in sorted((DOCS / "adr").glob("0*.md"))]

    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("page", [page for page in PAGES if shown(page) not in GENERATED], ids=shown)
def test_one_sentence_per_line(page: Path) -> None:
    """A changed sentence is a changed line. Tables, code and generated pages are exempt."""
    lines = _FENCED.sub("", _text(page)).splitlines()
    double = [line for line in lines if not line.startswith("|") and re.search(r"[a-z`)][.!?] [A-Z]", line)]

    assert double == []
