"""An error of the house as it was before Spark wrapped it: what happened in a task or in Java comes back as text.

Knows the classes of `iothub.errors` and how Python prints them.
"""

from __future__ import annotations

import re

from iothub.errors import (
    ConfigError,
    ConflictError,
    CorruptRecordError,
    FutureRecordError,
    IotHubError,
    NotFoundError,
    UnavailableError,
)

_OURS = re.compile(r"\biothub\.errors\.(\w+): ([^\n]+)")
_MADE = {
    each.__name__: each for each in (ConfigError, ConflictError, CorruptRecordError, FutureRecordError, NotFoundError)
}
_WORDS = 400  # characters of a foreign error
_FULL = "No space left on device"
_FULL_FILE = re.compile(rf"(/[^\s:'\"()]+) \({_FULL}\)|{_FULL}: '([^']+)'")  # as Java says it, and Python


def translated(error: BaseException) -> IotHubError:
    """Return the error of ours that is in a chain of errors or in its text; a foreign one is an UnavailableError with its first line."""
    if isinstance(error, IotHubError):
        return error
    found = _OURS.findall(str(error))
    if found:
        return _made(*found[-1])
    if _FULL in str(error):
        return _no_space(str(error))
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return UnavailableError(f"Spark: {type(error).__name__}: {first}"[:_WORDS])


def kind_of(error: IotHubError) -> str:
    """Return the word by which the runner knows it."""
    if isinstance(error, ConflictError | FutureRecordError):
        return "conflict"
    if isinstance(error, ConfigError | NotFoundError):
        return "config"
    return "corrupt" if isinstance(error, CorruptRecordError) else "unavailable"


def _no_space(text: str) -> UnavailableError:
    """Of a file that Spark wanted to write: what does not fit into memory lies below the run's folder."""
    found = _FULL_FILE.search(text)
    where = (found[1] or found[2]) if found else "Spark's files below the run's folder"
    return UnavailableError(f"{where}: no space is left on the disk: make room, then run the job again")


def _made(name: str, text: str) -> IotHubError:
    made = _MADE.get(name)
    return made(text) if made is not None else UnavailableError(text)
