"""The REST API in the test's own process: requests as they are, no socket; and a hub that answers what a test says.

Knows ASGI, so that a test needs no HTTP library.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI

from iothub.base.errors import UnavailableError
from iothub.config.sections import Config
from iothub.records.admin_commands import Json, Verb
from iothub.rest.app import make_paths
from iothub.rest.caller import Asked, BoundedHub
from iothub.rest.edge import Edge
from iothub_tenants.accounts import api_keys
from iothub_tenants.accounts.store import AccountStore
from tests.support.query_answers import CLIENT, LAST, QUEUE, SESSION

STEP: Json = {"node": 0, "step": "tenant", "outcome": "pass", "reason": "the tenant exists", "rule": ""}
ROOT = "/api/v1"


@cache
def paths() -> FastAPI:
    """All paths, made once: they know no store."""
    return make_paths("1.0")


class HubDouble:
    """A hub without a process. `answers`: the rows and the result of a verb, or the error that it is refused with."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Json]] = []
        self.hints = 0
        self.http = ""
        self.answers: dict[str, tuple[list[Json], Json] | Exception] = {
            Verb.CLIENT_LIST: ([CLIENT], LAST),
            Verb.CLIENT_SHOW: ([], CLIENT),
            Verb.CLIENT_KICK: ([], CLIENT),
            Verb.SESSION_LIST: ([SESSION], LAST),
            Verb.SESSION_SHOW: ([], SESSION),
            Verb.SESSION_DISCARD: ([], {}),
            Verb.QUEUE_LIST: ([{"client_id": "c1", **QUEUE}], LAST),
            Verb.QUEUE_SHOW: ([], QUEUE),
            Verb.QUEUE_PURGE: ([], {"messages": 2}),
            Verb.RETAIN_LIST: ([{"name": "a/b", "bytes": 1, "version": 1, "expires_at_ms": 0}], LAST),
            Verb.RETAIN_COUNT: ([], {"messages": 2}),
            Verb.RETAIN_SHOW: ([], {"version": 1}),
            Verb.RETAIN_DELETE: ([], {"messages": 2}),
            Verb.REJECTED_LIST: ([], {}),
            Verb.EXPLAIN_CONNECT: ([STEP], {}),
            Verb.EXPLAIN_PUBLISH: ([STEP], {}),
            Verb.EXPLAIN_SUBSCRIBE: ([STEP], {}),
            Verb.BAN_LIST: ([], {"left_out": 0, "reason": "10 failed logins within 60 s"}),
            Verb.BAN_LIFT: ([], {"bans": 1}),
            Verb.STATUS: ([], {"ready": True, "alarms": []}),
            Verb.CLUSTER_STATUS: ([{"node": 0, "state": "up"}], {}),
            Verb.CLUSTER_DRAIN: ([], {"node": 0, "name": "one", "clients": 3, "closed": 0}),
            Verb.CLUSTER_RESUME: ([], {"node": 0, "name": "one", "was_draining": True}),
        }

    def ask(self, verb: Verb, tenant: str, argument: Json, _silence_s: float = 0.0) -> Asked:
        self.asked.append((verb.value, tenant, argument))
        found = self.answers.get(verb, UnavailableError("no hub runs in /data: only a running hub can do this"))
        if isinstance(found, Exception):
            raise found
        return Asked(*found)

    def change(self, verb: Verb, tenant: str, argument: Json, _total_s: float = 0.0) -> Json:
        return self.ask(verb, tenant, argument).result

    def hint_changes(self) -> None:
        self.hints += 1

    def http_address(self) -> str:
        return self.http


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The stable code of a refusal."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        found = self.json
        assert found["status"] == self.status
        return str(found["code"])


class Api:
    """The application; requests are made with a key, `root` unless a test says otherwise."""

    def __init__(self, store: AccountStore, settings: Config | None = None) -> None:
        self.store = store
        self.hub = HubDouble()
        self.app = Edge(paths(), store=store, hub=BoundedHub(self.hub), settings=settings or Config())
        self.root = self.key("root", "platform-admin")

    def key(self, name: str, role: str, tenant: str | None = None) -> str:
        return api_keys.create(self.store, name, role, tenant).text

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = "",
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        """Make one request below /api/v1, or elsewhere with a path that begins with `//`. `key` None: without one."""
        given = {} if key is None else {"authorization": f"Bearer {key or self.root}"}
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if content:
            given["content-type"] = "application/json"
        given |= {name.lower(): value for name, value in (headers or {}).items()}
        target = path.removeprefix("/") if path.startswith("//") else ROOT + path
        return asyncio.run(request(self.app, method, target, given, content))

    def get(self, path: str, **options: Any) -> Answer:
        return self("GET", path, **options)

    def post(self, path: str, body: object = None, **options: Any) -> Answer:
        return self("POST", path, body, **options)


async def request(
    app: Callable[..., Any], method: str, target: str, headers: Mapping[str, str], body: bytes, *, is_whole: bool = True
) -> Answer:
    """Speak ASGI as uvicorn does. Not `is_whole`: the rest of the body never comes."""
    parts = urlsplit(target)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent: list[dict[str, Any]] = []
    pieces = [{"type": "http.request", "body": body, "more_body": not is_whole}]

    async def receive() -> dict[str, Any]:
        if pieces:
            return pieces.pop()
        await asyncio.Event().wait()
        raise AssertionError("nothing more comes")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    content = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, content)
