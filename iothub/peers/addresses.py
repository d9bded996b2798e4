"""Where a hub can be reached for links, as text: `host:port` or `unix:PATH`.

Opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint

UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class UnixPath:
    """A Unix socket."""

    path: Path


def parse_address(text: str) -> Endpoint | UnixPath:
    """Read an address. Raises ConfigError; it may be another hub's, so anything."""
    if text.startswith(UNIX):
        return UnixPath(Path(text.removeprefix(UNIX)))
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port[:6]) > 65535:
        raise ConfigError(f"{text!r} is no address of a hub: expected host:port or unix:PATH")
    return Endpoint(host.strip("[]"), int(port))


@contextmanager
def through_directory(path: Path) -> Iterator[str]:
    """Name a socket through its open directory: a socket address has at most 107 bytes, a path may be longer. Raises OSError."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
