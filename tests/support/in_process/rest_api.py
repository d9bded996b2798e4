"""The REST API in the test's own process: requests as they are, no socket; and a hub that answers what a test says.

Knows ASGI, so that a test needs no HTTP library.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI

from iothub.base.errors import UnavailableError
from iothub.cli import stream_topics
from iothub.config.sections import Config
from iothub.records.admin_commands import Json, Verb
from iothub.rest.app import make_paths
from iothub.rest.caller import Asked, BoundedHub
from iothub.rest.edge import Edge
from iothub.rest.fetching import fetch_json
from iothub.rest.oidc_provider import Fetch
from iothub_services.streams.port import Stream
from iothub_tenants.accounts import api_keys, job_runs, streams, users
from iothub_tenants.accounts.job_runs import Owner, Run
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.query_answers import CLIENT, LAST, QUEUE, SESSION

SUBSCRIPTION: Json = {
    "client_id": "c1",
    "group": "g",
    "filter": "a/#",
    "qos": 1,
    "no_local": False,
    "is_connected": True,
}
STEP: Json = {"node": 0, "step": "tenant", "outcome": "pass", "reason": "the tenant exists", "rule": ""}
ROOT = "/api/v1"
HOST = "hub.example.com:8081"


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
            Verb.CLIENT_TOP: ([CLIENT], {}),
            Verb.CLIENT_SHOW: ([], CLIENT),
            Verb.CLIENT_KICK: ([], CLIENT),
            Verb.SUBSCRIPTION_LIST: ([SUBSCRIPTION], LAST),
            Verb.GROUP_LIST: ([{"group": "g", "filter": "a/#", "connected": 2, "away": 1}], LAST),
            Verb.MESSAGE_PUBLISH: ([], {"message_id": "00" * 16, "is_retained": False, "has_subscribers": True}),
            Verb.ALARM_LIST: ([{"node": 0, "name": "disk_low", "since": 1_800_000_000.0}], {}),
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
            Verb.TRACE_START: ([], {"hubs": 1}),
            Verb.TRACE_LIST: ([], {}),
            Verb.TRACE_READ: ([], {"active": 0}),
            Verb.TRACE_STOP: ([], {"stopped": 1}),
            Verb.TRACE_DELETE: ([], {"deleted": 1}),
            Verb.EXPLAIN_CONNECT: ([STEP], {}),
            Verb.EXPLAIN_PUBLISH: ([STEP], {}),
            Verb.EXPLAIN_SUBSCRIBE: ([STEP], {}),
            Verb.BAN_LIST: ([], {"left_out": 0, "reason": "10 failed logins within 60 s"}),
            Verb.BAN_LIFT: ([], {"bans": 1}),
            Verb.STATUS: ([], {"ready": True, "alarms": []}),
            Verb.CLUSTER_STATUS: ([{"node": 0, "state": "up"}], {}),
            Verb.CLUSTER_DRAIN: ([], {"node": 0, "name": "one", "clients": 3, "closed": 0}),
            Verb.CLUSTER_EVICT: ([], {"node": 1, "name": "two", "was_gone": True, "has_left": False}),
            Verb.CONFIG_RELOAD: (
                [{"name": "log.level", "value": '"info"', "reload": "now"}],
                {"warnings": [], "certificates": []},
            ),
            Verb.STREAM_SHOW: ([], {"state": "up", "messages": 1}),
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

    def ask_workers(self, verb: Verb) -> list[Asked]:
        return [self.ask(verb, "", {})]

    def hint_changes(self) -> None:
        self.hints += 1

    def address(self, listener: str) -> str:  # the port has it
        return self.http


class MachineDouble:
    """A machine without a job's process. `starts`: what was asked to start."""

    def __init__(self, settings: Config | None = None) -> None:
        self._settings = settings or Config()
        self.starts: list[tuple[str, bool, bool, list[str]]] = []
        self.cancelled: list[int] = []
        self.kept_topics: list[bool] = []
        self.report = "<html><svg width='1'><path stroke='currentColor'/></svg> <svg/></html>"

    def config(self) -> Config:
        return self._settings

    def settings(self) -> list[dict[str, object]]:
        return [{"name": "log.level", "value": "info", "origin": "default"}]

    def features(self) -> dict[str, object]:
        return {"name": "iothub", "version": "1.0", "extras": ["admin"]}

    def event_lag(self) -> list[dict[str, object]]:
        return [{"partition": 0, "begin": 1, "end": 5, "events": 5, "applied": 3, "lag": 2}]

    def findings(self) -> list[dict[str, object]]:
        return [{"name": "clock", "state": "ok", "text": "right", "ms": None, "advice": None}]

    def start_run(
        self, store: AccountStore, job: str, *, is_full: bool, is_dry_run: bool, options: Sequence[str]
    ) -> Run:
        self.starts.append((job, is_full, is_dry_run, list(options)))
        return job_runs.begin(store, job, {}, Owner("here", 1, "me"))

    def cancel_run(self, run: Run) -> None:
        self.cancelled.append(run.id)

    def create_stream(self, store: AccountStore, tenant: str, name: str, topic_filter: str, **options: Any) -> Any:
        partitions, retention_s = options["partitions"] or 4, options["retention_s"] or 60
        wanted = streams.Wanted(name, topic_filter, options["direction"], partitions, retention_s * 1000)
        return {**self.stream_row(streams.create(store, tenant, wanted)), "existing_topics": []}

    def delete_stream(self, store: AccountStore, stream: Stream, *, is_topic_kept: bool) -> None:
        streams.remove(store, stream.tenant, stream.name)
        self.kept_topics.append(is_topic_kept)

    def stream_row(self, stream: Stream) -> dict[str, object]:
        return stream_topics.row(Config(), stream)

    def read_log(self, _run: Run) -> bytes:
        return b"one\ntwo\nthree\n"

    def read_report(self, _run: Run) -> str:
        return self.report


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

    def __init__(
        self, store: AccountStore, settings: Config | None = None, fetch: Fetch = fetch_json, name: str = "root"
    ) -> None:
        self.store = store
        self.hub = HubDouble()
        self.machine = MachineDouble(settings)
        self.app = Edge(
            paths(),
            store=store,
            hub=BoundedHub(self.hub),
            machine=self.machine,
            settings=settings or Config(),
            fetch=fetch,
        )
        self.root = self.key(name, "platform-admin")

    def key(self, name: str, role: str, tenant: str | None = None) -> str:
        return api_keys.create(self.store, name, role, tenant).text

    def login(self, name: str, role: str, tenant: str | None = None) -> dict[str, str]:
        """Make a user and log in: the headers of a browser on a page of this server."""
        made = users.create(self.store, name, role, tenant)
        answer = self.post("/auth/login", {"name": name, "password": made.password}, key=None)
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return {"cookie": cookie, "host": HOST, "origin": f"http://{HOST}"}

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = "",
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        scheme: str = "http",
        address: str = "127.0.0.1",
    ) -> Answer:
        """Make one request below /api/v1, or elsewhere with a path that begins with `//`. `key` None: without one."""
        given = {} if key is None else {"authorization": f"Bearer {key or self.root}"}
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if content:
            given["content-type"] = "application/json"
        given |= {name.lower(): value for name, value in (headers or {}).items()}
        target = path.removeprefix("/") if path.startswith("//") else ROOT + path
        return asyncio.run(request(self.app, method, target, given, content, scheme=scheme, address=address))

    def get(self, path: str, **options: Any) -> Answer:
        return self("GET", path, **options)

    def post(self, path: str, body: object = None, **options: Any) -> Answer:
        return self("POST", path, body, **options)


async def request(
    app: Callable[..., Any],
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    is_whole: bool = True,
    scheme: str = "http",
    address: str = "127.0.0.1",
) -> Answer:
    """Speak ASGI as uvicorn does. Not `is_whole`: the rest of the body never comes."""
    parts = urlsplit(target)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": (address, 1),
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
