"""The quota ledger over the store process: a script, its keys and its arguments, as they go to Redis where hubs of several machines share one.

Knows no script and no quota.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iothub_services.store_process.connection import StoreConnection
from iothub_services.store_process.frames import FrameError, many, text
from iothub_services.store_process.ports import CallPort
from iothub_services.store_process.verbs import Verb

PORT = "quota"
ANSWER_S = 2.0  # nothing of it waits for a disk; callers go on with what they hold

Argument = bytes | str | int | float


def _argument(value: object) -> Argument:
    if type(value) in (bytes, str, int, float):
        return value  # type: ignore[return-value]
    raise FrameError("not an argument")


def _reply(value: object) -> Any:
    """Read a reply as Redis has them: lists of lists, bytes and numbers."""
    if isinstance(value, tuple):
        return [_reply(each) for each in value]
    if value is None or type(value) in (bytes, int):
        return value
    raise FrameError("not a reply")


VERBS = {"run": Verb((text, many(text), many(_argument)), _reply)}


def ledger_port(run: Callable[[str, Sequence[str], Sequence[Argument]], object]) -> CallPort:
    """Return the port of the store process: one script after the other."""
    return CallPort(PORT, VERBS, {"run": run}, is_single=True)


class RemoteLedger:
    """Runs scripts in the store process. Any thread; a call blocks."""

    def __init__(self, path: Path) -> None:
        self._connection = StoreConnection(path, PORT, VERBS, answer_s=ANSWER_S)

    def run(self, digest: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Raises BackendError; `is_written` is False when the script was not run for certain."""
        return self._connection.write("run", digest, keys, arguments)

    def close(self) -> None:
        self._connection.close()
