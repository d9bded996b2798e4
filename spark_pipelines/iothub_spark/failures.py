"""An error of the house as it was before Spark wrapped it: what happened in a task or in Java comes back as text.

Knows the classes of `iothub.base.errors` and how Python prints them, and how py4j and Spark say that a process of theirs is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from iothub.base.errors import (
    ConfigError,
    ConflictError,
    CorruptRecordError,
    IotHubError,
    NotFoundError,
    UnavailableError,
)

_OURS = re.compile(r"\biothub\.errors\.(\w+): ([^\n]+)")
_MADE = {each.__name__: each for each in (ConfigError, ConflictError, CorruptRecordError, NotFoundError)}
_WORDS = 400  # characters of a foreign error
NO_JAVA = (Py4JNetworkError, ConnectionError)  # of stores we have words of our own: this is the connection to Java
_NOT_STARTED = "JAVA_GATEWAY_EXITED"  # Spark's word for a Java that ended before it was up
_SPENT = re.compile(r"java\.lang\.OutOfMemoryError")
_NO_WORKER = re.compile(  # as Spark says it, and as Java does of the pipe to a worker or to what forks them
    r"Python worker exited unexpectedly|EOFException occurred while reading the port number"
    r"|Python (?:daemon )?failed to launch worker|Python worker failed to connect back|waiting for the Python worker to connect back"
    r"|java\.(?:io|net)\.\w+(?:: (?:Broken pipe|Stream closed|Connection reset))?(?=(?:\s+at [^\n]+)*?\s+at org\.apache\.spark\.api\.python\.)"
)
_CALLED = "An error occurred while calling "  # py4j's line above Java's
_MEMORY = "killed or out of memory: raise spark.driver_memory or lower spark.master, and look into `dmesg` for the kernel's out-of-memory killer"
_FULL = "No space left on device"
_FULL_FILE = re.compile(rf"(/[^\s:'\"()]+) \({_FULL}\)|{_FULL}: '([^']+)'")  # as Java says it, and Python


class DiedError(IotHubError):
    """Java or its Python workers are gone. No store is to blame, and waiting for one mends nothing."""


def translated(error: BaseException) -> IotHubError:
    """Return the error of ours that is in its text; a foreign one is an UnavailableError with its first line, a DiedError when Java is gone."""
    if isinstance(error, IotHubError):
        return error
    found = _OURS.findall(str(error))
    if found:
        return _made(*found[-1])
    if _FULL in str(error):
        return _no_space(str(error))
    if gone := _gone(error):
        return DiedError(gone)
    lines = (line.strip(": ") for line in str(error).splitlines())
    first = next((line for line in lines if line and not line.startswith(_CALLED)), "")
    return UnavailableError(f"Spark: {type(error).__name__}: {first}"[:_WORDS])


def kind_of(error: IotHubError) -> str:
    """Return the word by which the runner knows it."""
    if isinstance(error, DiedError):
        return "died"
    if isinstance(error, ConflictError):
        return "conflict"
    if isinstance(error, ConfigError | NotFoundError):
        return "config"
    return "corrupt" if isinstance(error, CorruptRecordError) else "unavailable"


def _gone(error: BaseException) -> str:
    """Say which process is gone; empty: none."""
    chain = list(_chain(error))
    if any(isinstance(each, PySparkException) and each.getCondition() == _NOT_STARTED for each in chain):
        return f"Java ended before Spark was up (is it Java 17 or later?), or was {_MEMORY}"
    if any(isinstance(each, NO_JAVA) for each in chain):
        return f"Java has gone, in which Spark runs: {_MEMORY}"
    if spent := _found(_SPENT, chain):
        return f"{spent}: {_MEMORY}"
    worker = _found(_NO_WORKER, chain)
    return (
        f"the Python workers have gone, in which Spark runs a part of the job ({worker}): {_MEMORY}" if worker else ""
    )


def _found(words: re.Pattern[str], chain: Iterable[BaseException]) -> str:
    """Return the first of these words in what any of these errors say; empty: none has them."""
    return next((match[0] for each in chain if (match := words.search(str(each)))), "")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _no_space(text: str) -> UnavailableError:
    """Of a file that Spark wanted to write: what does not fit into memory lies below the run's folder."""
    found = _FULL_FILE.search(text)
    where = (found[1] or found[2]) if found else "Spark's files below the run's folder"
    return UnavailableError(f"{where}: no space is left on the disk: make room, then run the job again")


def _made(name: str, text: str) -> IotHubError:
    made = _MADE.get(name)
    return made(text) if made is not None else UnavailableError(text)
