"""The commits of the store process held back for a backup, as a worker asks for it.

Knows no file: all of them commit under one lock (`iothub_services.sqlite.commit_lock`).
"""

from __future__ import annotations

from pathlib import Path

from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.store_process.connection import StoreConnection
from iothub_services.store_process.frames import flag, seconds, text
from iothub_services.store_process.ports import CallPort
from iothub_services.store_process.verbs import Verb

PORT = "commits"

VERBS = {"hold": Verb((seconds, seconds), text), "release": Verb((text,), flag)}


def commit_port(commits: CommitLock) -> CallPort:
    """Return the port of the store process."""
    return CallPort(PORT, VERBS, {"hold": commits.hold, "release": commits.release}, is_single=False)


class RemoteCommits:
    """Holds as `CommitLock` does. Any thread; a call blocks."""

    def __init__(self, path: Path) -> None:
        self._connection = StoreConnection(path, PORT, VERBS)

    def hold(self, patience_s: float, hold_s: float) -> str:
        """Keep every commit of the stores back for at most `hold_s`; return the hold; empty: there is another. Raises UnavailableError."""
        hold: str = self._connection.write("hold", patience_s, hold_s)
        return hold

    def release(self, hold: str) -> bool:
        """End a hold. False: it had ended before, and others may have committed meanwhile. Raises BackendError."""
        return bool(self._connection.write("release", hold))

    def close(self) -> None:
        self._connection.close()
