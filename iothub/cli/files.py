"""Files that a person names on the command line: read with a bound, written for the owner alone.

Knows no content beyond "this is JSON".
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import IO

from iothub.errors import ConfigError, UnavailableError

JSON_LIMIT_BYTES = 256 << 20


def read_json(file: IO[bytes]) -> object:
    """Return what a JSON file holds. Raises ConfigError, UnavailableError."""
    try:
        octets = file.read(JSON_LIMIT_BYTES + 1)
    except OSError as error:
        raise UnavailableError(f"{file.name}: cannot be read: {error.strerror}") from None
    if len(octets) > JSON_LIMIT_BYTES:
        raise ConfigError(f"{file.name}: longer than {JSON_LIMIT_BYTES >> 20} MiB, which no export is")
    try:
        return json.loads(octets)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file.name}: expected JSON: {error}") from None


def write_secret_file(path: Path, text: str) -> None:
    """Write a file that only its owner can read; one that is there is replaced. Raises UnavailableError."""
    try:
        descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(fresh, path)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
