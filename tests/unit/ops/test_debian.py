"""`ops/debian`: what the package's scripts say; tests/nightly builds the package and starts its hub."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEBIAN = ROOT / "ops/debian"
SCRIPTS = ("postinst", "prerm", "postrm")


@pytest.mark.parametrize("name", [*SCRIPTS, "iothub"])
def test_script_is_one_that_a_posix_shell_reads(name: str) -> None:
    done = subprocess.run(["sh", "-n", DEBIAN / name], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert (DEBIAN / name).read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_ends_at_the_first_failure(name: str) -> None:
    """Else dpkg would take a package as installed that is not."""
    assert "\nset -e\n" in (DEBIAN / name).read_text()


def test_manual_page_has_the_exit_codes_of_the_command() -> None:
    page = " ".join((DEBIAN / "iothub.1").read_text().split())
    codes = re.search(r"Exit codes: (.+7 unavailable)", (ROOT / "iothub/cli/main.py").read_text())

    assert codes is not None
    assert codes[1] in page


def test_scripts_know_the_units_that_there_are() -> None:
    named = {
        unit for name in SCRIPTS for unit in re.findall(r"iothub[\w-]*\.(?:service|timer)", (DEBIAN / name).read_text())
    }
    folders = (ROOT / "ops/systemd", ROOT / "ops/schedules")
    units = {path.name for folder in folders for path in folder.iterdir() if path.suffix in (".service", ".timer")}

    assert named == units


def test_data_is_removed_by_purge_alone() -> None:
    """No script asks, and `remove` keeps configuration and data."""
    text = (DEBIAN / "postrm").read_text()
    removing, purging = text.split("\nremove)\n")[1].split("\npurge)\n")

    assert "/var/lib/iothub" not in removing
    assert "rm -rf /var/lib/iothub /etc/iothub" in purging
    assert not any("read " in (DEBIAN / name).read_text() for name in SCRIPTS)
