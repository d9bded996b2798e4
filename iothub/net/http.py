"""Health and metrics over HTTP, inside the hub's process: /livez /readyz /metrics /metrics/tenants /status.

Knows no counter and no subsystem: it asks a `Health`. There is no login here, hence loopback by default; GET and HEAD only, no
request body, one request per connection, a bounded number of connections, each with a bounded life.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import parse_qs

import h11
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IDelayedCall, IListeningPort, ITCPTransport
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import ServerFactory, connectionDone
from twisted.python.failure import Failure

from iothub.base import log
from iothub.base.errors import UnavailableError

MAX_CONNECTIONS = 64
CONNECTION_LIFE_S = 30.0  # also of one that trickles its request or does not read its answer
_HEAD_LIMIT_BYTES = 8192
_METHODS = frozenset((b"GET", b"HEAD"))
_JSON = "application/json"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_PAGE_LIMIT = 1000  # tenants on one page of /metrics/tenants
_QUERY_LIMIT_BYTES = 1024
T = TypeVar("T")

Query = Mapping[str, str]
Page = bytes | Iterator[bytes]  # at once, or in parts with a turn of the reactor after each
Answer = tuple[HTTPStatus, str, Page]  # status, content type, body
Facts = Mapping[str, object]


class Health(Protocol):
    """What the HTTP listener asks of the hub, on the reactor thread. Each answers at once, or later where others have to be asked."""

    def readyz(self) -> Facts | Awaitable[Facts]:
        """Return `ready`, and `reasons` why not, in words for an operator; ready for JSON."""

    def status(self) -> Facts | Awaitable[Facts]:
        """Return facts for `iothub status`, ready for JSON."""

    def metrics(self) -> bytes | Awaitable[bytes]:
        """Return the Prometheus page of the platform."""

    def tenant_metrics(self, tenant: str | None, after: str, limit: int) -> Page | Awaitable[Page]:
        """Return the Prometheus page of one tenant, or of up to `limit` tenants whose names follow `after`; a long one in parts."""


class Reactor(Protocol):
    """The part of a Twisted reactor that is used."""

    def callLater(self, delay: float, callable: Callable[[], None]) -> IDelayedCall: ...  # noqa: N802

    def listenTCP(  # noqa: N802
        self, port: int, factory: object, backlog: int = ..., interface: str = ...
    ) -> IListeningPort: ...

    def adoptStreamPort(self, fileDescriptor: int, addressFamily: int, factory: object) -> IListeningPort: ...  # noqa: N802, N803


class _BadQueryError(Exception):
    """A query that asks for nothing sensible."""


class _Exchange(TwistedProtocol):
    """One connection: one request, one answer, the end."""

    def __init__(self, factory: HttpFactory, reactor: Reactor) -> None:
        self._factory = factory
        self._reactor = reactor
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT_BYTES)
        self._end: IDelayedCall | None = None
        self._is_lost = False

    def connectionMade(self) -> None:  # noqa: N802
        self._end = self._reactor.callLater(CONNECTION_LIFE_S, self._cut)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        if self._http.our_state is not h11.IDLE:
            return  # answered already; whatever comes after the one request is not read
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            self._send(status, _JSON, _body({"error": "not a request"}), is_head=False)
            return
        if isinstance(event, h11.Request):
            self._wait(self._answer(event), is_head=event.method == b"HEAD")
        elif event is not h11.NEED_DATA:
            self._cut()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802
        self._is_lost = True
        if self._end is not None and self._end.active():
            self._end.cancel()
        self._factory.open_connections -= 1

    def _answer(self, request: h11.Request) -> Answer | Deferred[Answer]:
        names = dict(request.headers)
        has_body = b"transfer-encoding" in names or names.get(b"content-length", b"0") != b"0"
        if has_body and request.method in _METHODS:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _JSON, _body({"error": "a request has no body here"})
        path, _, query = request.target.partition(b"?")
        return self._factory.answer(request.method, path, query)

    def _wait(self, answer: Answer | Deferred[Answer], *, is_head: bool) -> None:
        if isinstance(answer, Deferred):
            answer.addCallback(lambda found: self._gather(found, [], is_head=is_head))
        else:
            self._gather(answer, [], is_head=is_head)

    def _gather(self, answer: Answer, parts: list[bytes], *, is_head: bool) -> None:
        """Send the answer when its body is there; a body in parts is asked for the next one, and others get their turn."""
        status, kind, body = answer
        if self._is_lost:
            return
        if isinstance(body, bytes):
            self._send(status, kind, body, is_head=is_head)
            return
        part = self._factory.next_part(body)
        if part is None:
            self._send(status, kind, b"".join(parts), is_head=is_head)
        elif isinstance(part, bytes):
            parts.append(part)
            self._reactor.callLater(0, lambda: self._gather(answer, parts, is_head=is_head))
        else:
            self._gather(part, [], is_head=is_head)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, *, is_head: bool) -> None:
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        response = h11.Response(status_code=status.value, headers=headers, reason=status.phrase)
        transport = cast("ITCPTransport", self.transport)
        transport.write(self._http.send(response) or b"")
        if not is_head:
            transport.write(body)
        transport.loseConnection()

    def _cut(self) -> None:
        cast("ITCPTransport", self.transport).abortConnection()


class HttpFactory(ServerFactory[_Exchange]):
    """The factory of the HTTP listener: routes, and what was asked how often (for the metric)."""

    noisy = False

    def __init__(self, health: Health, reactor: Reactor) -> None:
        self.open_connections = 0
        self.requests: dict[tuple[str, str], int] = {}  # (route, status)
        self._health = health
        self._reactor = reactor
        self._log = log.get(__name__)
        self._routes: dict[bytes, Callable[[Query], _Answering]] = {
            b"/livez": self._livez,
            b"/readyz": self._readyz,
            b"/metrics": self._metrics,
            b"/metrics/tenants": self._tenant_metrics,
            b"/status": self._status,
        }

    def buildProtocol(self, addr: IAddress | None) -> _Exchange | None:  # noqa: N802
        if self.open_connections >= MAX_CONNECTIONS:
            return None
        self.open_connections += 1
        return _Exchange(self, self._reactor)

    def answer(self, method: bytes, path: bytes, query: bytes) -> Answer | Deferred[Answer]:
        """Return status, content type and body of one request, at once or later. Never raises or fails: this is the edge."""
        route = self._routes.get(path)
        answer: Answer | Deferred[Answer]
        if route is None:
            answer = (
                HTTPStatus.NOT_FOUND,
                _JSON,
                _body({"error": "not found", "paths": sorted(p.decode() for p in self._routes)}),
            )
        elif method not in _METHODS:
            answer = (HTTPStatus.METHOD_NOT_ALLOWED, _JSON, _body({"error": "only GET and HEAD are allowed"}))
        else:
            answer = self._answer(route, query)
        name = path.decode() if route is not None else "other"
        if isinstance(answer, Deferred):
            return answer.addCallback(lambda found: self._count(name, found))
        return self._count(name, answer)

    def _count(self, name: str, answer: Answer) -> Answer:
        key = (name, str(answer[0].value))
        self.requests[key] = self.requests.get(key, 0) + 1
        return answer

    def next_part(self, parts: Iterator[bytes]) -> bytes | Answer | None:
        """Return the next part of a body, None at its end, or what is to be answered instead. Never raises."""
        try:
            return next(parts, None)
        except Exception as error:  # noqa: BLE001, RUF100 - protocol edge: a defect in a counter must not close the page
            return self._failed(error)

    def _answer(self, route: Callable[[Query], _Answering], query: bytes) -> Answer | Deferred[Answer]:
        try:
            answer = route(_parse_query(query))
            if isinstance(answer, Coroutine):
                return Deferred.fromCoroutine(self._later(answer))
            return answer
        except _BadQueryError as error:
            return HTTPStatus.BAD_REQUEST, _JSON, _body({"error": str(error)})
        except Exception as error:  # noqa: BLE001, RUF100 - protocol edge: a defect in a counter must not close the page
            return self._failed(error)

    async def _later(self, answer: Coroutine[Deferred[Any], Any, Answer]) -> Answer:
        try:
            return await answer
        except Exception as error:  # noqa: BLE001, RUF100 - protocol edge, as in `_answer`
            return self._failed(error)

    def _failed(self, error: Exception) -> Answer:
        self._log.error("health page failed", exc_info=error)
        return HTTPStatus.INTERNAL_SERVER_ERROR, _JSON, _body({"error": "internal error; see the hub's log"})

    def _livez(self, _query: Query) -> Answer:
        return HTTPStatus.OK, _JSON, _body({"live": True})

    def _readyz(self, _query: Query) -> _Answering:
        return _once(self._health.readyz(), _readiness)

    def _status(self, _query: Query) -> _Answering:
        return _once(self._health.status(), lambda facts: (HTTPStatus.OK, _JSON, _body(facts)))

    def _metrics(self, _query: Query) -> _Answering:
        return _once(self._health.metrics(), _page)

    def _tenant_metrics(self, query: Query) -> _Answering:
        limit = query.get("limit", str(_PAGE_LIMIT))
        if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:9]) <= _PAGE_LIMIT:
            raise _BadQueryError(f"limit: expected a number from 1 to {_PAGE_LIMIT}")
        page = self._health.tenant_metrics(query.get("tenant"), query.get("after", ""), int(limit))
        return _awaited(page, _page) if isinstance(page, Awaitable) else _page(page)


_Answering = Answer | Coroutine["Deferred[Any]", Any, Answer]


def _once(found: T | Awaitable[T], answer: Callable[[T], Answer]) -> _Answering:
    """Make an answer of what is found, when it is."""
    if isinstance(found, Awaitable):
        return _awaited(found, answer)
    return answer(found)


async def _awaited(found: Awaitable[T], answer: Callable[[T], Answer]) -> Answer:
    return answer(await found)


def _readiness(facts: Facts) -> Answer:
    return HTTPStatus.OK if facts["ready"] else HTTPStatus.SERVICE_UNAVAILABLE, _JSON, _body(facts)


def _page(page: Page) -> Answer:
    return HTTPStatus.OK, _TEXT, page


def listen(
    reactor: Reactor, factory: HttpFactory, bind: str, port: int, *, is_port_shared: bool = False
) -> IListeningPort:
    """Open the HTTP listener; `port.getHost()` has the real port. `is_port_shared`: other workers listen there, too.

    Raises:
        UnavailableError: The port is in use or may not be opened.
    """
    if is_port_shared:
        return _listen_shared(reactor, factory, bind, port)
    try:
        return reactor.listenTCP(port, factory, backlog=MAX_CONNECTIONS, interface=bind)
    except CannotListenError as error:
        raise _not_listening(bind, port, error.socketError) from None


def _listen_shared(reactor: Reactor, factory: HttpFactory, bind: str, port: int) -> IListeningPort:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listening.bind((bind, port))
            listening.listen(MAX_CONNECTIONS)
        except OSError as error:
            raise _not_listening(bind, port, error) from None
        return reactor.adoptStreamPort(listening.fileno(), family, factory)  # which makes a descriptor of its own


def try_port(bind: str, port: int) -> None:
    """See that the port can be had, and let go of it. Raises as `listen`."""
    with socket.socket(socket.AF_INET6 if ":" in bind else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as error:
            raise _not_listening(bind, port, error) from None


def _not_listening(bind: str, port: int, error: object) -> UnavailableError:
    why = getattr(error, "strerror", None) or error
    return UnavailableError(f"http: cannot listen on {bind} port {port}: {why}; choose another http.port")


def _parse_query(query: bytes) -> Query:
    if len(query) > _QUERY_LIMIT_BYTES:
        raise _BadQueryError("query: too long")
    try:
        fields = parse_qs(query.decode("ascii"), keep_blank_values=True, max_num_fields=8, errors="strict")
    except ValueError:
        raise _BadQueryError("query: expected name=value pairs") from None
    return {name: values[0] for name, values in fields.items()}


def _body(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, indent=2, default=str).encode() + b"\n"
