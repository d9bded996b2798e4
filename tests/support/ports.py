"""TCP ports for servers that a test starts: none is given twice, to no process of the machine.

Knows no server. The kernel's own choice (port 0) is not enough: a port is free again between the choice and the server's bind, and another test,
or an outgoing connection, may get it.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_PORTS = range(20_000, 32_000)  # below those of outgoing connections
_CLAIMS = Path(tempfile.gettempdir()) / f"iothub-test-ports-{os.getuid()}"
_held: list[int] = []  # descriptors: a claim ends with its process


def free_port() -> int:
    """Return a port that nobody listens at, and that no other call returns while this process lives."""
    _CLAIMS.mkdir(exist_ok=True)
    for port in random.sample(_PORTS, len(_PORTS)):
        mark = os.open(_CLAIMS / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _claim(mark) and _is_free(port):
            _held.append(mark)
            return port
        os.close(mark)
    raise AssertionError(f"every port of {_PORTS} is in use")


def _claim(mark: int) -> bool:
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
