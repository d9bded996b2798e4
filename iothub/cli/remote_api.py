"""Requests to the REST API of another machine: JSON in and out, pages as one list, refusals as the errors that commands raise.

Knows no resource.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from iothub.base.errors import (
    ConfigError,
    ConflictError,
    DeniedError,
    IotHubError,
    NotFoundError,
    TenantLimitError,
    UnavailableError,
)
from iothub.base.text import path_part, printable
from iothub.cli.contexts import Context

PREFIX = "/api/v1"
PAGE = 1000
_PATIENCE_S = 40.0  # longer than the API waits for a hub
_LONG_S = 3600.0  # for many devices, a few milliseconds each: their secrets are in this answer, and nowhere else
_LONG = (":apply", ":import")
_PART_S, _PART = 300.0, "/devices:import"  # of a file that is sent in parts, each of which is asked for again
_MOST_BYTES = 64 << 20

Query = Mapping[str, object]
Given = Mapping[str, Any]
Row = dict[str, Any]


class Reply(NamedTuple):
    """What an API has answered. `link`: the header that names the next page."""

    status: int
    link: str
    body: bytes
    wait_s: float = 0.0  # before it is asked again, if it says so


Send = Callable[[Context, str, str, "bytes | None", str], Reply]
"""`send(context, method, target, body, idempotency_key)`. Raises UnavailableError."""


class Page(NamedTuple):
    """Rows of a list, and where it goes on; None: it is complete."""

    rows: list[dict[str, Any]]
    next: str | None
    unanswered: list[str]


def filled(path: str, given: Given) -> str:
    """Put arguments into a path that has their names in braces."""
    return path.format_map({name: path_part(str(value)) for name, value in given.items()})


class RemoteApi:
    """The API of one context."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def name(self) -> str:
        return self._context.name

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", path, query=query)

    def call(self, method: str, path: str, body: object = None, query: Query | None = None) -> Any:
        """Make one request; return the object of the answer, None for an empty one. Raises IotHubError, as the command here would."""
        return self._decoded(self._sent(method, path, body, query or {}))

    def text(self, path: str, **query: object) -> bytes:
        """Return an answer as it is."""
        return self._sent("GET", path, None, query).body

    def post_csv(self, path: str, lines: str, query: Query) -> Any:
        """Send a file."""
        return self.read(self.reply_to_csv(path, lines, query))

    def reply_to_csv(self, path: str, lines: str, query: Query, key: str = "") -> Reply:
        """Send a file; return the answer, whatever it says: `read` does that. A repeated one with the same `key` gets the first one's answer."""
        return self._send("POST", path, lines.encode("utf-8", "surrogateescape"), query, key)

    def read(self, reply: Reply) -> Any:
        """Return the object of an answer. Raises IotHubError."""
        return self._decoded(self._taken(reply))

    def refusal_of(self, problem: Mapping[str, Any]) -> IotHubError:
        """Return the error that an object of the API is."""
        text = str(problem.get("with_commands") or problem["detail"])
        return _KINDS.get(int(problem["status"]), IotHubError)(printable(text))

    def page(self, path: str, limit: int, after: str = "", **query: object) -> Page:
        """Return up to `limit` rows of a list, in as many requests as that takes."""
        rows: list[dict[str, Any]] = []
        unanswered: list[str] = []
        following: str | None = after
        while following is not None and len(rows) < limit and not unanswered:
            count = min(PAGE, limit - len(rows))
            reply = self._sent("GET", path, None, {**query, "limit": count, "after": following or None})
            answer = self._decoded(reply)
            rows += answer["items"]
            unanswered += answer.get("unanswered", ())
            following = _following(reply.link)
        return Page(rows, following, unanswered)

    def all(self, path: str, **query: object) -> list[dict[str, Any]]:
        """Return the whole list."""
        return self.page(path, 1 << 62, "", **query).rows

    @contextmanager
    def understood(self) -> Iterator[None]:
        """What is inside reads answers: one of another shape comes from something else than this API. Raises UnavailableError."""
        try:
            yield
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise UnavailableError(
                f"{self._where()} answers with other JSON than this program knows: "
                "is this the address of the API, and has it the version of this program?"
            ) from error

    def _sent(self, method: str, path: str, body: object, query: Query) -> Reply:
        return self._taken(self._send(method, path, body, query))

    def _send(self, method: str, path: str, body: object, query: Query, key: str = "") -> Reply:
        given = {name: _text(value) for name, value in query.items() if value is not None}
        target = f"{PREFIX}{path}" + (f"?{urlencode(given)}" if given else "")
        content = body if body is None or isinstance(body, bytes) else json.dumps(body, default=str).encode()
        return send(self._context, method, target, content, key)

    def _taken(self, reply: Reply) -> Reply:
        if reply.status >= 400:
            raise self._refusal(reply)
        if not 200 <= reply.status < 300:
            raise UnavailableError(f"{self._where()} answers {reply.status}: is this the address of the API?")
        return reply

    def _decoded(self, reply: Reply) -> Any:
        if not reply.body:
            return None
        try:
            return json.loads(reply.body)
        except ValueError:
            raise UnavailableError(
                f"{self._where()} does not answer with JSON: is this the address of the API?"
            ) from None

    def _refusal(self, reply: Reply) -> IotHubError:
        try:
            problem = json.loads(reply.body)
            text = str(problem.get("with_commands") or problem["detail"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return UnavailableError(f"{self._where()} answers {reply.status}: is this the address of the API?")
        if reply.status == 401:
            text = f"{self._where()} does not accept the key: it is disabled, or another one ({self._context.key_from})"
        error = _KINDS.get(reply.status, IotHubError)(printable(text))
        error.details = tuple(line for line in map(_detail, problem.get("errors", ())) if line not in text)
        return error

    def _where(self) -> str:
        return f"the API of context {self._context.name} ({self._context.url})"


def send_http(context: Context, method: str, target: str, body: bytes | None, key: str) -> Reply:
    """Raises UnavailableError: it does not answer."""
    parts = urlsplit(context.url)
    headers = {"Authorization": f"Bearer {context.read_key()}", "Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = media_type(target)
    if key:
        headers["Idempotency-Key"] = key
    try:
        connection = _connection(context, parts.scheme, parts.hostname or "", parts.port, patience_s(target))
        try:
            connection.request(method, parts.path + target, body, headers)
            answer = connection.getresponse()
            wait = answer.getheader("Retry-After") or ""
            wait_s = float(wait) if wait.isdecimal() else 0.0
            return Reply(answer.status, answer.getheader("Link") or "", answer.read(_MOST_BYTES), wait_s)
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnavailableError(
            f"the API of context {context.name} does not answer at {context.url}: {reason}; "
            "check that it runs there, and the address with `iothub context list`"
        ) from None


def media_type(target: str) -> str:
    """Return what the body of a request to this path is."""
    return "text/csv" if _path_of(target).endswith(("/devices:import", "/acl-rules:import")) else "application/json"


def patience_s(target: str) -> float:
    """Return how long the answer to a request to this path may take."""
    path = _path_of(target)
    if path.endswith(_PART):
        return _PART_S
    return _LONG_S if path.endswith(_LONG) else _PATIENCE_S


def _path_of(target: str) -> str:
    return target.partition("?")[0]


send: Send = send_http


def _connection(
    context: Context, scheme: str, host: str, port: int | None, timeout_s: float
) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    trusted = ssl.create_default_context(cafile=context.ca_file or None)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=trusted)


def _following(link: str) -> str | None:
    if 'rel="next"' not in link:
        return None
    return parse_qs(urlsplit(link.partition("<")[2].partition(">")[0]).query)["after"][0]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _detail(error: Mapping[str, object]) -> str:
    text = str(error.get("with_commands") or error["detail"])
    return f"{error['field']}: {text}" if "field" in error else text


_KINDS: dict[int, type[IotHubError]] = {
    400: ConfigError,
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    405: UnavailableError,
    408: UnavailableError,
    409: ConflictError,
    412: ConflictError,
    413: ConfigError,
    415: ConfigError,
    422: ConfigError,
    429: TenantLimitError,
    503: UnavailableError,
}
