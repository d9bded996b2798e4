"""Lets nobody commit for a moment, so that several SQLite files can be read as of one instant.

Knows no file: a `Database` commits inside `commit()`. Commits run beside each other; a hold waits for those that run and keeps back those that come.
Other processes do not know the lock.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

from iothub.base.errors import UnavailableError

_NEVER = inf


class CommitLock:
    """A shared lock for commits, an exclusive one for a hold. Any thread.

    Invariants: no commit runs while a hold has been granted, nor while what is called with it runs. A hold ends by itself, with the first commit
    that has waited for its end: whoever has it and dies keeps nobody back. `release` says whether that has happened.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commits = 0  # that run
        self._hold = ""  # the hold that is granted or waits for the commits that run
        self._until = 0.0  # then it ends
        self.on_hold: list[
            Callable[[], None]
        ] = []  # called with each hold that is granted: what is elsewhere goes into the files

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Do one commit; waits while there is a hold."""
        with self._changed:
            self._wait_for_hold()
            self._commits += 1
        try:
            yield
        finally:
            with self._changed:
                self._commits -= 1
                self._changed.notify_all()

    def hold(self, patience_s: float, hold_s: float) -> str:
        """Keep every commit back for at most `hold_s`; return the hold, for `release`. Blocks until no commit runs, at most `patience_s`.

        Empty: there is another hold. It is not waited for, because the thread that waits may be the one that is to release it.
        Raises UnavailableError: a commit takes longer.
        """
        until = monotonic() + patience_s
        with self._changed:
            if self._hold and monotonic() < self._until:
                return ""
            self._end(self._hold)
            mine = self._hold = secrets.token_hex(8)
            self._until = until
            while self._commits and self._hold == mine and (left := until - monotonic()) > 0:
                self._changed.wait(left)
            if self._commits or self._hold != mine:
                self._end(mine)
                raise UnavailableError(f"a commit has taken longer than {patience_s:g} s: the disk is slow or failing")
            self._until = _NEVER
        try:
            for put_down in self.on_hold:
                put_down()
        except BaseException:
            self.release(mine)
            raise
        with self._changed:
            self._until = monotonic() + hold_s
            self._changed.notify_all()
        return mine

    def release(self, hold: str) -> bool:
        """End a hold. False: it had ended before, and others may have committed meanwhile."""
        with self._changed:
            return self._end(hold)

    def _wait_for_hold(self) -> None:
        """Wait until there is no hold; one that is over ends here."""
        while self._hold:
            left = self._until - monotonic()
            if left <= 0:
                self._end(self._hold)
            else:
                self._changed.wait(None if left == _NEVER else left)

    def _end(self, hold: str) -> bool:
        is_there = bool(hold) and self._hold == hold
        if is_there:
            self._hold = ""
            self._changed.notify_all()
        return is_there
