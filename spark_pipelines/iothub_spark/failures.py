"""An error of ours as it was before Spark wrapped it: what happened in a task or in Java comes back as text.

Knows the classes of `iothub.base.errors` and how Python prints them. Whatever else is raised is a failure of Spark: errors of stores are ours.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JNetworkError

from iothub.base.errors import (
    ConfigError,
    ConflictError,
    CorruptRecordError,
    IotHubError,
    NotFoundError,
    UnavailableError,
)

NO_JAVA = (Py4JNetworkError, ConnectionError)  # of stores we have words of our own: this is the connection to Java
_OURS = re.compile(r"\biothub\.base\.errors\.(\w+): ([^\n]+)")
_MADE = {each.__name__: each for each in (ConfigError, ConflictError, CorruptRecordError, NotFoundError)}
_WORDS = 400  # characters of a foreign error
_CALLED = "An error occurred while calling "  # py4j's line above Java's
_ADVICE = (
    "if Java or a Python worker ran out of memory or was killed (see `dmesg`), "
    "raise spark.driver_memory or use fewer cores in spark.master"
)
_FULL = "No space left on device"
_FULL_FILE = re.compile(rf"(/[^\s:'\"()]+) \({_FULL}\)|{_FULL}: '([^']+)'")  # as Java says it, and Python


class DiedError(IotHubError):
    """Spark failed, or its Java or Python workers are gone. No store is to blame, and waiting for one mends nothing."""


def translated(error: BaseException) -> IotHubError:
    """Return the error of ours that is in its text; a foreign one is a DiedError with its first line."""
    if isinstance(error, IotHubError):
        return error
    found = _OURS.findall(str(error))
    if found:
        return _made(*found[-1])
    if _FULL in str(error):
        return _no_space(str(error))
    lines = (line.strip(": ") for line in str(error).splitlines())
    first = next((line for line in lines if line and not line.startswith(_CALLED)), "")
    return DiedError(f"Spark failed: {type(error).__name__}: {first[:_WORDS]}; {_ADVICE}")


def kind_of(error: IotHubError) -> str:
    """Return the word by which the runner knows it."""
    if isinstance(error, DiedError):
        return "died"
    if isinstance(error, ConflictError):
        return "conflict"
    if isinstance(error, ConfigError | NotFoundError):
        return "config"
    return "corrupt" if isinstance(error, CorruptRecordError) else "unavailable"


def _no_space(text: str) -> UnavailableError:
    """Of a file that Spark wanted to write: what does not fit into memory lies below the run's folder."""
    found = _FULL_FILE.search(text)
    where = (found[1] or found[2]) if found else "Spark's files below the run's folder"
    return UnavailableError(f"{where}: the disk is full: free some space, then run the job again")


def _made(name: str, text: str) -> IotHubError:
    made = _MADE.get(name)
    return made(text) if made is not None else UnavailableError(text)
