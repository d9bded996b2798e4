"""No descriptor is free: who is there is served, the processor rests, and accepting goes on by itself."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import iothub
from tests.support.waiting import PATIENCE_S

DESCRIPTORS = 100
CLIENTS = 400
SCRIPT = Path(__file__).with_name("echo_hub.py")


@pytest.fixture
def hub(twin: str) -> Iterator[tuple[psutil.Process, tuple[str, int]]]:
    command = [sys.executable, str(SCRIPT), twin, str(DESCRIPTORS)]
    environ = os.environ | {"PYTHONPATH": str(Path(iothub.__file__).parent.parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield psutil.Process(process.pid), ("127.0.0.1", port)
        process.kill()


def is_served(client: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        client.sendall(b"ping")
        return client.recv(4) == b"ping"
    return False


def test_hub_without_free_descriptors_stays_calm_and_recovers(hub) -> None:
    """Processor below 20 %, existing clients unharmed, new ones after relief."""
    process, address = hub
    witness = socket.create_connection(address, timeout=PATIENCE_S)
    assert is_served(witness)
    crowd: list[socket.socket] = []
    for _ in range(CLIENTS):
        with contextlib.suppress(OSError):
            crowd.append(socket.create_connection(address, timeout=PATIENCE_S))
    assert is_served(witness)
    used = sum(process.cpu_times()[:2])
    started = time.monotonic()
    witness.settimeout(2.0)
    with pytest.raises(TimeoutError):
        witness.recv(1)
    share = (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - started)
    assert share < 0.2
    witness.settimeout(PATIENCE_S)
    assert is_served(witness)
    for client in crowd:
        client.close()
    deadline = time.monotonic() + PATIENCE_S
    newcomer = None
    while newcomer is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            candidate = socket.create_connection(address, timeout=PATIENCE_S)
            if is_served(candidate):
                newcomer = candidate
            else:
                candidate.close()
    assert newcomer is not None
    newcomer.close()
    witness.close()
