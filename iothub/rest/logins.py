"""Logging in and out: a name and a password become a login, whoever tries too often waits, and every try leaves its mark.

Knows no cookie and no body. Passwords are proven in threads of their own, so a wave of logins takes none that other requests need.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from iothub.base import log as logging
from iothub.rest.login_limits import FailureLimits, FailureLines
from iothub.rest.problems import Code, ProblemError
from iothub_tenants.accounts import login_sessions, users
from iothub_tenants.accounts.login_sessions import Begun
from iothub_tenants.accounts.store import AccountStore

T = TypeVar("T")
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="iothub"'}
_THREADS = 2
_MOST_WAITING = 16

log = logging.get(__name__)


class Logins:
    """One process's. Its coroutines run on the event loop."""

    def __init__(self, store: AccountStore, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._limits = FailureLimits(monotonic)
        self._lines = FailureLines(monotonic)
        self._threads = ThreadPoolExecutor(_THREADS, "login")
        self._waiting = 0

    async def log_in(self, name: str, password: str, address: str) -> Begun:
        """Raises ProblemError: it is nobody's password; too many such failures; too many who log in just now. Raises BackendError."""
        self._begin_attempt(name, address)
        try:
            begun = await self._run(partial(self._proven, name, password, address))
        except BaseException:
            self._limits.take_back(name, address)
            raise
        if begun is None:
            await self.note_failure(name, address, "password")
            raise ProblemError(
                Code.LOGIN_FAILED, "the name or the password is wrong, or the user is disabled", headers=CHALLENGE
            )
        self._limits.take_back(name, address)
        log.info("logged in", user=begun.user.name, address=address)
        return begun

    async def change_password(self, name: str, old: str, new: str, address: str) -> None:
        """Let a user choose another password, who has the old one; all his logins end. Raises as `log_in`, and ConfigError for a bad one."""
        self._begin_attempt(name, address)
        try:
            is_right = await self._run(lambda: users.proven(self._store, name, old) is not None)
        except BaseException:
            self._limits.take_back(name, address)
            raise
        if not is_right:
            await self.note_failure(name, address, "password")
            raise ProblemError(Code.FORBIDDEN, "the old password is wrong")
        self._limits.take_back(name, address)
        await self._run(lambda: users.set_password(self._store.acting_as(f"user:{name}"), name, new))

    async def note_failure(self, name: str, address: str, how: str) -> None:
        """Leave a line about a login that failed, in log and audit log, unless there were many."""
        left_out = self._lines.next_line()
        if left_out is None:
            return
        noted = {"by": how, "address": address, **({"left_out": left_out} if left_out else {})}
        known = await self._run(lambda: login_sessions.note_failure(self._store.acting_as("anonymous"), name, **noted))
        log.warning("login failed", user=known or "unknown", **noted)

    def _begin_attempt(self, name: str, address: str) -> None:
        wait_s = self._limits.begin(name, address)
        if wait_s > 0:
            raise ProblemError(
                Code.TOO_MANY_FAILURES,
                f"too many logins have failed: try again in {math.ceil(wait_s)} s",
                headers={"Retry-After": str(math.ceil(wait_s))},
            )

    def _proven(self, name: str, password: str, address: str) -> Begun | None:
        found = users.proven(self._store, name, password)
        if found is None:
            return None
        user, proof = found
        store = self._store.acting_as(f"user:{user.name}")
        return login_sessions.begin(store, user, proof, by="password", address=address)

    async def _run(self, call: Callable[[], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise ProblemError(
                Code.BUSY, "too many people log in at the moment: try again", headers={"Retry-After": "1"}
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        finally:
            self._waiting -= 1
