"""Our administration programs inside HBase's own JVM (`AdminSocket.java`): a JVM of its own for each takes seconds of processor.

Knows the bytes at the socket; knows no process. Where nobody listens, whoever asked starts the program by itself.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = "admin.sock"
READING = "iothub.hbase.admin.TableAdmin"  # what is wanted comes on its standard input
PROGRAMS = (READING, "iothub.hbase.admin.RegionAdmin")
_LIMIT_S = 300.0  # of one request: 128 regions on a busy machine
_FAILED = 1


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended, and what it wrote."""

    code: int
    out: bytes
    err: bytes


def run_inside(folder: Path, words: Sequence[str], given: bytes) -> Done | None:
    """Have the JVM that runs in this folder do it; None when none of them listens.

    A JVM that ends before its answer has failed: what was asked may be done, or half of it.
    """
    descriptor = os.open(folder, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_LIMIT_S)
            try:
                connection.connect(
                    f"/proc/self/fd/{descriptor}/{FILE}"
                )  # the folder's own path may be too long for a socket
            except (FileNotFoundError, ConnectionRefusedError):
                return None
            try:
                return _asked(connection, words, given)
            except OSError as error:
                return Done(_FAILED, b"", f"HBase ended, or did not answer, while it was asked: {error}\n".encode())
    finally:
        os.close(descriptor)


def _asked(connection: socket.socket, words: Sequence[str], given: bytes) -> Done:
    texts = [word.encode() for word in words] + [given]
    connection.sendall(struct.pack(">i", len(words)) + b"".join(struct.pack(">i", len(text)) + text for text in texts))
    with connection.makefile("rb") as answer:

        def read(size: int) -> bytes:
            found = answer.read(size)
            if len(found) < size:
                raise ConnectionError("the connection was closed")
            return found

        def number() -> int:
            return int(struct.unpack(">i", read(4))[0])

        return Done(number(), read(number()), read(number()))
