"""The load generator notices every fault of a broker: what `make bench` calls valid has been checked.

Knows no fault: `tests/bench/load/selftest` lists them, and has a broker for each.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

LOAD = Path(__file__).resolve().parents[1] / "bench/load"


def test_load_generator_notices_every_faulty_broker() -> None:
    """A correct broker is accepted, each faulty one is refused with its reason; about two minutes."""
    done = subprocess.run(["make", "--no-print-directory", "-C", str(LOAD), "selftest"], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
