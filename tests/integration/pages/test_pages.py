"""The README and the guides, followed word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import Walk, blocks

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_page_works_word_by_word(page: Path, tmp_path: Path) -> None:
    """Every command of the page does what the page says, in order, in an empty directory. Those of the README are started as they are."""
    directory = tmp_path / "empty"
    directory.mkdir()
    walk = Walk(directory, is_whole=page.stem == "README")

    count = walk.run(page)

    assert count > 0
