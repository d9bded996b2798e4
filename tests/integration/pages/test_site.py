"""`make docs`: every page is in the site, every link leads somewhere, and a reader's browser asks nobody else."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FOREIGN = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^\s>]+")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "made"
    done = subprocess.run(
        [sys.executable, ROOT / "docs/build.py", folder], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def builder() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/build.py"))


def test_every_page_is_in_the_site(site: Path) -> None:
    """And none of what is announced at the next release, which CHANGELOG has."""
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    wanted = {path if path.name != "README.html" else path.with_name("index.html") for path in pages}

    made = {path.relative_to(site) for path in site.rglob("*.html")}

    assert {path for path in wanted if path.parts[0] != "changes"} <= made
    assert {Path("readme.html"), Path("CHANGELOG.html"), Path("reference/rest-api.html")} <= made


def test_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    found = {match for path in site.rglob("*.html") for match in FOREIGN.findall(path.read_text(encoding="utf-8"))}

    assert {match for match in found if 'rel="canonical"' not in match} == set()


def test_page_of_the_rest_api_has_every_path(site: Path, builder: dict[str, Any]) -> None:
    from iothub.rest.app import make_paths, openapi_of

    text = (site / "reference/rest-api.html").read_text(encoding="utf-8")
    document = openapi_of(make_paths("1"))

    missing = [
        path for path, verbs in document["paths"].items() for verb in verbs if f"{verb.upper()} {path}" not in text
    ]
    assert document["paths"]
    assert missing == []


@pytest.mark.parametrize("link", ["none.md", "index.md#none"])
def test_broken_link_is_no_site(builder: dict[str, Any], tmp_path: Path, link: str) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(f"# A page\n\n[to nowhere]({link})\n")

    assert not builder["build"](pages, ["index.md"], tmp_path / "made")
