"""What every request passes before a path sees it: who asks, how large and of what kind the body is, whether it was done before.

Knows no resource. Whatever goes wrong behind it is a problem+json, and never a traceback.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub.config.sections import Config
from iothub.rest import cookies
from iothub.rest.caller import BoundedHub, Caller, Principal
from iothub.rest.fetching import fetch_json
from iothub.rest.idempotency import Answers
from iothub.rest.logins import CHALLENGE, Logins
from iothub.rest.machine import Machine
from iothub.rest.oidc_provider import Fetch
from iothub.rest.problems import DEFECT, Code, ProblemError, problem_of, response_of
from iothub.rest.request_limits import RequestLimits
from iothub_tenants.accounts import api_keys, login_sessions
from iothub_tenants.accounts.store import AccountStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX = "/api/v1"
BODY_BYTES = 1 << 20
IMPORT_BYTES = 16 << 20
UNUSED = "iothub.unused"  # in the scope of a request inside this process: it does not keep its login alive
BODY_S = 15.0  # for the whole of it
_LARGE = (":import", ":apply")
_CSV = ("/devices:import", "/acl-rules:import")
OPEN = frozenset(
    f"{PREFIX}/auth/{name}" for name in ("login", "oidc", "oidc/callback")
)  # paths that take whoever comes

log = logging.get(__name__)


class Edge:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        store: AccountStore,
        hub: BoundedHub,
        machine: Machine,
        settings: Config,
        monotonic: Callable[[], float] = time.monotonic,
        fetch: Fetch = fetch_json,
    ) -> None:
        """`settings`: of the login, which hold until the process ends. Raises ConfigError, UnavailableError: what they name cannot be read."""
        self._app = app
        self._store = store
        self._hub = hub
        self._machine = machine
        self._limits = RequestLimits(store, monotonic)
        self._answers = Answers(monotonic)
        self._logins = Logins(store, settings, fetch, monotonic)
        self._url = settings.admin.url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reply = _Reply(send)
        try:
            await self._answer(scope, receive, reply)
        except ProblemError as problem:
            await reply.refuse(scope, receive, problem)
        except IotHubError as error:
            await reply.refuse(scope, receive, problem_of(error, is_platform=False))
        except Exception as error:  # the edge towards a client
            log.error("defect in the API", path=scope["path"], exc_info=error)
            await reply.refuse(scope, receive, ProblemError(Code.DEFECT, DEFECT))

    async def _answer(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        path = scope["path"]
        if path != PREFIX and not path.startswith(f"{PREFIX}/"):
            scope["iothub.store"] = self._store
            await self._app(scope, receive, reply)
            return
        headers = Headers(scope=scope)
        scope["iothub.logins"] = self._logins
        if path in OPEN:
            cookies.require_own_origin(scope, self._url, is_required=False)
            await self._app(scope, _whole(await _body(scope, receive, headers)), reply)
            return
        principal, store = await self._principal(scope, headers)
        caller = Caller(principal, store, self._hub, await run_in_threadpool(self._let_in, principal))
        scope["iothub.caller"] = caller
        scope["iothub.machine"] = self._machine
        body = await _body(scope, receive, headers)
        scope["iothub.body"] = body
        reply.before = lambda: self._hint(caller)
        await self._done_once(scope, headers, body, reply)

    async def _principal(self, scope: Scope, headers: Headers) -> tuple[Principal, AccountStore]:
        """Return who asks, by his key or else by the cookie of his login, and the accounts as he changes them.

        Raises ProblemError: there is neither, or it is nobody's; or a page of another origin makes a change.
        """
        given = headers.get("authorization")
        found = None
        if given is not None:
            kind, _, text = given.partition(" ")
            if kind.lower() == "bearer" and text:
                key = await run_in_threadpool(api_keys.holder, self._store, text.strip())
                found = None if key is None else Principal.of_key(key)
        elif (token := cookies.read(scope)) is not None:
            is_used = not scope.get(UNUSED, False)
            user = await run_in_threadpool(login_sessions.holder, self._store, token, is_used=is_used)
            if user is not None:
                cookies.require_own_origin(scope, self._url, is_required=True)
                found = Principal.of_user(user)
        if found is None:
            raise ProblemError(
                Code.UNAUTHENTICATED,
                "neither a valid key nor a login: send the header `Authorization: Bearer KEY`, or log in",
                headers=CHALLENGE,
            )
        return found, self._store.acting_as(found.actor)

    def _let_in(self, principal: Principal) -> Config:
        """Return the settings for one request. Raises ProblemError: he has made too many."""
        self._limits.require(principal)
        return self._machine.config()

    async def _done_once(self, scope: Scope, headers: Headers, body: bytes, reply: _Reply) -> None:
        given = headers.get("idempotency-key")
        if scope["method"] != "POST" or given is None:
            await self._app(scope, _whole(body), reply)
            return
        if not 1 <= len(given) <= 200:
            raise ProblemError(Code.INVALID, "Idempotency-Key: expected 1 to 200 characters")
        caller: Caller = scope["iothub.caller"]
        asked = scope["path"] + "?" + scope["query_string"].decode("latin-1")
        name = (caller.principal.id, asked, given)  # a key that gets the name of a deleted one is another caller
        known = self._answers.begin(name, body)
        if known is not None and known.status is not None:
            headers_again = [*known.headers, (b"idempotent-replayed", b"true")]
            await reply({"type": "http.response.start", "status": known.status, "headers": headers_again})
            await reply({"type": "http.response.body", "body": known.body})
            return
        reply.is_kept = True
        try:
            await self._app(scope, _whole(body), reply)
        except BaseException:
            self._answers.forget(name)
            raise
        self._answers.finish(name, reply.status, reply.headers, bytes(reply.body))

    async def _hint(self, caller: Caller) -> None:
        """Have the hub read what was changed before the client hears that it was."""
        if caller.store.has_changed:
            await run_in_threadpool(self._hub.hint_changes)


class _Reply:
    """The way back: adds what every answer has, and remembers one that may be given again."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.before: Callable[[], object] | None = None
        self.is_kept = False
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
            if self.before is not None:
                await self.before()  # type: ignore[misc]  # a coroutine function
            message = {**message, "headers": [*self.headers, *_SAFE]}
        elif self.is_kept:
            self.body += message.get("body", b"")
        await self._send(message)

    async def refuse(self, scope: Scope, receive: Receive, problem: ProblemError) -> None:
        """Refuse, unless an answer has begun already."""
        if not self.status:
            self.before = None
            await response_of(problem)(scope, receive, self)


_SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
]


async def _body(scope: Scope, receive: Receive, headers: Headers) -> bytes:
    path = scope["path"]
    body = await _in_time(_read(receive, headers, _most(path))) if _has_body(scope) else b""
    _check_media_type(path, headers, body)
    return body


async def _in_time(reading: Coroutine[object, object, bytes]) -> bytes:
    try:
        return await asyncio.wait_for(reading, BODY_S)
    except TimeoutError:
        raise ProblemError(
            Code.BODY_TOO_SLOW, f"the body was not complete within {BODY_S:.0f} s", headers={"Connection": "close"}
        ) from None


def _has_body(scope: Scope) -> bool:
    return scope["method"] in ("POST", "PUT", "PATCH", "DELETE")


def _most(path: str) -> int:
    return IMPORT_BYTES if path.endswith(_LARGE) else BODY_BYTES


async def _read(receive: Receive, headers: Headers, most: int) -> bytes:
    """Raises ProblemError: the body is too large, or its client is gone."""
    said = headers.get("content-length", "0")
    if not said.isdecimal() or int(said[:20]) > most:
        raise _too_large(most)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProblemError(Code.BODY_TOO_SLOW, "the connection was closed before the body was complete")
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(most: int) -> ProblemError:
    return ProblemError(
        Code.BODY_TOO_LARGE, f"the body is larger than {most} bytes: send less", headers={"Connection": "close"}
    )


def _check_media_type(path: str, headers: Headers, body: bytes) -> None:
    if not body:
        return
    expected = "text/csv" if path.endswith(_CSV) else "application/json"
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != expected:
        raise ProblemError(Code.UNSUPPORTED_MEDIA_TYPE, f"the body is not {expected}: set Content-Type")


def _whole(body: bytes) -> Receive:
    """Give the body that was read; then nothing more comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive
