"""Whole frames over a blocking Unix socket, and how such a socket is named.

Knows no body.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iothub_services.store_process.frames import FRAME_BYTES, HEAD_BYTES, size_of

MODE = 0o600
_TIMEVAL = struct.Struct("@ll")
_PIECE_BYTES = 1 << 20  # of a large frame: memory grows with what has arrived, not with what was announced


class ClosedError(OSError):
    """The other side has closed the connection."""


def new_socket() -> socket.socket:
    """Return a socket that no other program inherits."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)


def set_time_limit(connection: socket.socket, seconds: float) -> None:
    """Let a call that waits for longer raise BlockingIOError: by the kernel, as Python would ask it twice for each call."""
    limit = _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1_000_000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Name a socket through its open directory: an address has at most 107 bytes, a path may be longer. Raises OSError."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def listen(path: Path) -> socket.socket:
    """Listen for processes of the same user. What an earlier process left there is removed. Raises OSError."""
    path.unlink(missing_ok=True)
    listening = new_socket()
    try:
        os.fchmod(listening.fileno(), MODE)  # before it has a name: nobody else can connect for a moment
        with address_of(path) as address:
            listening.bind(address)
            os.chmod(path, MODE)
        listening.listen(socket.SOMAXCONN)
    except BaseException:
        listening.close()
        raise
    return listening


def receive_frame(connection: socket.socket, most: int = FRAME_BYTES) -> bytes:
    """Read one whole body. Raises ClosedError, OSError, FrameError."""
    return _receive(connection, size_of(_receive(connection, HEAD_BYTES), most))


def is_closed(connection: socket.socket) -> bool:
    """Say whether the other side has gone, or has said something that nobody asked for: then nothing can be asked over this connection."""
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _receive(connection: socket.socket, size: int) -> bytes:
    piece = connection.recv(min(size, _PIECE_BYTES)) if size else b""
    if len(piece) == size:
        return piece
    pieces, missing = [piece], size - len(piece)
    while piece:
        piece = connection.recv(min(missing, _PIECE_BYTES)) if missing else b""
        pieces.append(piece)
        missing -= len(piece)
    if missing:
        raise ClosedError("the connection was closed")
    return b"".join(pieces)
