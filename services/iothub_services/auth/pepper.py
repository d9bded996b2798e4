"""The server's pepper: the key under which generated secrets are stored, one file of the data directory.

Knows no credentials. Without the pepper a stolen accounts database proves nobody; with another pepper nobody gets in.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from iothub.errors import ConfigError, ConflictError, UnavailableError

PEPPER_BYTES = 32


def create_pepper(path: Path) -> bytes:
    """Write a new pepper, durable when this returns, and return it.

    Raises:
        ConflictError: the file exists; a pepper is never overwritten.
        UnavailableError: the file cannot be written.
    """
    pepper = os.urandom(PEPPER_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConflictError(
            f"{path} exists already; it is never overwritten, for it would lock every device out"
        ) from None
    except OSError as error:
        raise UnavailableError(f"cannot create {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(pepper)
        file.flush()
        os.fsync(descriptor)
    return pepper


def load_pepper(path: Path) -> bytes:
    """Return the pepper.

    Raises:
        ConfigError: the file is readable by others, or has not the right length.
        UnavailableError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            pepper = file.read(PEPPER_BYTES + 1)
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror}; `iothub init` creates it") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{path} is readable by others (mode {stat.S_IMODE(mode):o}); run: chmod 600 {path}")
    if len(pepper) != PEPPER_BYTES:
        raise ConfigError(
            f"{path} has not {PEPPER_BYTES} bytes; restore it from a backup, devices cannot log in without it"
        )
    return pepper
