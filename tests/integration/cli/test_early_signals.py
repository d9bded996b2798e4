"""`iothub.cli.entry`: signals that come while the hub is still starting; there is no moment in which they have no meaning."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.hubs import hub as support
from tests.support.hubs.datadirs import fresh_hub
from tests.support.waiting import PATIENCE_S, until


def signals(pid: int, field: str) -> int:
    """A mask of /proc: `SigCgt` or `SigIgn`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith(field))


def starting(directory: Path) -> subprocess.Popen[str]:
    """A hub as soon as its process knows what SIGTERM means, long before it serves."""
    hub = fresh_hub(directory)
    command = [str(support.IOTHUB), "--data-dir", str(hub.data_dir), "serve", "--set", "listeners.tcp.port=0"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until(lambda: signals(process.pid, "SigCgt") >> (signal.SIGTERM - 1) & 1, "a handler of SIGTERM")
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_while_starting_is_a_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    """Exit code 0 and one line, as the help promises, whatever is being loaded. A hub that was ready sooner than this process stops as any other."""
    process = starting(tmp_path)
    process.send_signal(number)
    said, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
    assert '"event": "ready"' in said or said.splitlines()[-1] == "iothub: stopped before the hub was ready"


def test_reload_while_starting_does_not_end_the_hub(tmp_path: Path) -> None:
    process = starting(tmp_path)
    process.send_signal(signal.SIGHUP)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    is_ready = any('"event": "ready"' in line for line in lines)  # a warning about the machine may come first
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)

    assert is_ready
    assert process.returncode == 0
