"""A plug-in of pytest: notes the tests that failed in the file that IOTHUB_FAILED_TESTS names, one a line; `ops/test.sh` tries them once more.

Knows no test.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Set-up and tear-down count, too; of the workers of a spread run the one that hears all speaks."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        note = Path(os.environ["IOTHUB_FAILED_TESTS"])
        known = note.read_text().splitlines() if note.exists() else []
        if report.nodeid not in known:
            note.write_text("".join(f"{line}\n" for line in [*known, report.nodeid]))
