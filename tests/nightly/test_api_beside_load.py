"""95 of 100 calls of each path of the REST API take less than 50 ms beside a hub that has half of the load it can take.

`tests/bench/bench_api.py` measures; its table is the message of a failure.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import ROOT


def test_95_of_100_calls_take_less_than_50_ms_beside_a_load(tmp_path: Path) -> None:
    subprocess.run(["make", "--no-print-directory", "-C", ROOT / "tests/bench/load"], check=True, capture_output=True)

    done = subprocess.run(
        [sys.executable, ROOT / "tests/bench/bench_api.py"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
