"""What systemd says of unit files. It need not run here: its package is enough."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.waiting import PATIENCE_S


def verify(*units: Path) -> list[str]:
    """Return each complaint about these files; those about units of the machine are nobody's here."""
    command = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    names = {unit.name for unit in units}
    said = [line for line in done.stderr.splitlines() if any(name in line for name in names)]
    assert said or done.returncode == 0, done.stderr
    return said
