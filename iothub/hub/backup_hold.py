"""Keeps this hub's SQLite files unchanged while `iothub backup` begins to read them, all as of one moment.

Knows no file: all of them commit under one lock. The copying is the command's own, in its process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from iothub.base.errors import UnavailableError
from iothub.records.admin_commands import Json, Request
from iothub_services.auth.port import Run

PATIENCE_S = 5.0  # for commits that run, and again for another backup's hold
AGAIN_S = 0.05
HOLD_S = 2.0  # enough to begin a read in each file; a command that dies keeps the hub back no longer


class Commits(Protocol):
    """What holds commits back: this process's own lock, or that of the store process."""

    def hold(self, patience_s: float, hold_s: float) -> str: ...

    def release(self, hold: str) -> bool: ...


class BackupHold:
    """On the reactor thread. Reading goes on; what must be stored waits, and is acknowledged later."""

    def __init__(self, commits: Commits, run: Run, pause: Callable[[float], Awaitable[None]]) -> None:
        self._commits = commits
        self._run = run
        self._pause = pause

    async def begin(self) -> Json:
        """Raises UnavailableError: a commit, or another backup, takes too long."""
        for _ in range(round(PATIENCE_S / AGAIN_S)):
            hold = await self._run("backup.hold", self._commits.hold, PATIENCE_S, HOLD_S)
            if hold:
                return {"hold": hold}
            await self._pause(AGAIN_S)
        raise UnavailableError("another backup is beginning; try again")

    async def end(self, request: Request) -> Json:
        """Let the hub write again."""
        return {"is_whole": await self._run("backup.release", self._commits.release, str(request.argument.get("hold")))}
