"""Logging in: a name and a password, or the word of an OpenID provider, become a login; whoever tries too often waits, and every try leaves its mark.

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
from iothub.base.errors import ConfigError, ConflictError, DeniedError, NotFoundError, UnavailableError
from iothub.config.sections import Config, Oidc
from iothub.rest.fetching import fetch_json
from iothub.rest.login_limits import FailureLimits, FailureLines
from iothub.rest.oidc import Departure, OidcLogin
from iothub.rest.oidc_provider import Fetch, Provider
from iothub.rest.problems import Code, ProblemError, without_commands
from iothub_tenants.accounts import login_sessions, users
from iothub_tenants.accounts.login_sessions import Begun
from iothub_tenants.accounts.store import AccountStore

T = TypeVar("T")
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="iothub"'}
_THREADS = 2
_MOST_WAITING = 16
_OIDC = "oidc:"  # in place of a name, which nobody has
_STATE_CHARS = 64  # more than a state of ours has

log = logging.get(__name__)


class _Threads:
    """A few threads, and a bounded number of calls that wait for one."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, name)
        self._waiting = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Raises ProblemError: too many wait already."""
        if self._waiting >= _MOST_WAITING:
            raise ProblemError(
                Code.BUSY, "too many people log in at the moment: try again", headers={"Retry-After": "1"}
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        finally:
            self._waiting -= 1


class Logins:
    """One process's. Its coroutines run on the event loop.

    A provider that does not answer keeps nobody from logging in with a password.
    """

    def __init__(
        self,
        store: AccountStore,
        settings: Config,
        fetch: Fetch = fetch_json,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError, UnavailableError: the provider's secret cannot be read."""
        self._store = store
        self._limits = FailureLimits(monotonic)
        self._lines = FailureLines(monotonic)
        self._passwords = _Threads("login")
        self._provider = _Threads("oidc")
        self._oidc = _oidc_of(settings, store, fetch, monotonic)

    async def log_in(self, name: str, password: str, address: str) -> Begun:
        """Raises ProblemError: it is nobody's password; too many such failures; too many who log in just now. Raises BackendError."""
        self._begin_attempt(name, address)
        try:
            begun = await self._passwords.run(partial(self._proven, name, password, address))
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
            is_right = await self._passwords.run(lambda: users.proven(self._store, name, old) is not None)
        except BaseException:
            self._limits.take_back(name, address)
            raise
        if not is_right:
            await self.note_failure(name, address, "password")
            raise ProblemError(Code.FORBIDDEN, "the old password is wrong")
        self._limits.take_back(name, address)
        await self._passwords.run(lambda: users.set_password(self._store.acting_as(f"user:{name}"), name, new))

    async def begin_oidc(self) -> Departure:
        """Send a browser to the OpenID provider. Raises ProblemError: there is none; UnavailableError: it does not answer."""
        oidc = self._require_oidc()
        return await self._provider.run(oidc.begin)

    async def finish_oidc(self, cookie: str | None, state: str, code: str, address: str) -> Begun:
        """Log in whom the provider has sent back. Raises as `OidcLogin.finish`, all refusals as ProblemError."""
        oidc = self._require_oidc()
        attempt = f"{_OIDC}{state[:_STATE_CHARS]}"  # of its own: what somebody else sends to this path keeps nobody out
        self._begin_attempt(attempt, address)
        try:
            begun = await self._provider.run(partial(oidc.finish, cookie, state, code, address))
        except (ConfigError, ConflictError, DeniedError, NotFoundError) as error:
            await self.note_failure("", address, "oidc")
            log.info("login by the OpenID provider refused", address=address, cause=str(error))
            raise ProblemError(Code.FORBIDDEN, without_commands(str(error))) from None
        except BaseException:
            self._limits.take_back(attempt, address)
            raise
        self._limits.take_back(attempt, address)
        log.info("logged in", user=begun.user.name, address=address)
        return begun

    def _require_oidc(self) -> OidcLogin:
        if self._oidc is None:
            raise ProblemError(Code.NOT_FOUND, "no OpenID provider is set (the setting admin.oidc.issuer)")
        return self._oidc

    async def note_failure(self, name: str, address: str, how: str) -> None:
        """Leave a line about a login that failed, in log and audit log, unless there were many."""
        left_out = self._lines.next_line()
        if left_out is None:
            return
        noted = {"by": how, "address": address, **({"left_out": left_out} if left_out else {})}
        known = await self._passwords.run(
            lambda: login_sessions.note_failure(self._store.acting_as("anonymous"), name, **noted)
        )
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


def _oidc_of(settings: Config, store: AccountStore, fetch: Fetch, monotonic: Callable[[], float]) -> OidcLogin | None:
    oidc = settings.admin.oidc
    if not oidc.issuer:
        return None
    provider = Provider(oidc, _secret_of(oidc), fetch, monotonic)
    return OidcLogin(settings.admin, store, provider, store.clock.wall)


def _secret_of(oidc: Oidc) -> str:
    if oidc.client_secret_file is None:
        return ""
    try:
        secret = oidc.client_secret_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise UnavailableError(f"admin.oidc.client_secret_file: {oidc.client_secret_file}: {error}") from None
    if not secret or not secret.isprintable():
        raise ConfigError(f"admin.oidc.client_secret_file: {oidc.client_secret_file} has no secret in it")
    return secret
