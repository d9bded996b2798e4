"""The page of all limits is the one that the code would write."""

from __future__ import annotations

from pathlib import Path

from iothub_services.quota.names import Quota
from iothub_services.quota.reference import render_reference

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_what_the_code_says() -> None:
    """Regenerate with `.venv/bin/python docs/reference/generate.py`."""
    assert (ROOT / "docs/reference/quotas.md").read_text(encoding="utf-8") == render_reference()


def test_page_names_every_limit() -> None:
    """With its value in the plan `standard`."""
    page = render_reference()

    for quota in Quota:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{quota.value}` |")]
        assert quota.standard is None or f"| {quota.standard} |" in row
