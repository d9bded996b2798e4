"""Health and metrics over HTTP: the right page, and nothing that a stranger can make grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from iothub.base.errors import UnavailableError
from iothub.net import http


class FakeHealth:
    """A hub whose readiness the test decides."""

    def __init__(self) -> None:
        self.why: list[str] = []
        self.soon: list[str] = []
        self.asked: tuple[str | None, str, int] | None = None
        self.is_broken = False

    def readyz(self) -> Mapping[str, object]:
        return {"ready": not self.why, "reasons": self.why}

    def warnings(self) -> list[str]:
        return self.soon

    def status(self) -> Mapping[str, object]:
        return {"version": "0", "connections": 3}

    def metrics(self) -> bytes:
        if self.is_broken:
            raise KeyError("counter")
        return b"iothub_connections 3\n"

    def tenant_metrics(self, tenant: str | None, after: str, limit: int) -> bytes:
        self.asked = (tenant, after, limit)
        return b'iothub_tenant_connections{tenant="acme"} 3\n'


class SlicedHealth(FakeHealth):
    """A hub with so many tenants that their page comes in parts; the third part may fail."""

    def tenant_metrics(self, tenant: str | None, after: str, limit: int) -> Iterator[bytes]:  # type: ignore[override]
        yield b"a 1\n"
        yield b"b 2\n"
        if self.is_broken:
            raise KeyError("counter")


class LateHealth:
    """A hub that asks others first: each answer comes when the test gives it."""

    def __init__(self) -> None:
        self.answers: list[Deferred[Any]] = []

    async def readyz(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", await self.wait())

    async def status(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", await self.wait())

    async def metrics(self) -> bytes:
        return cast("bytes", await self.wait())

    async def tenant_metrics(self, tenant: str | None, after: str, limit: int) -> Iterator[bytes]:
        return iter([cast("bytes", await self.wait()), f"{tenant} {after} {limit}".encode()])

    def wait(self) -> Deferred[Any]:
        self.answers.append(Deferred())
        return self.answers[-1]


class Abortable(StringTransport):
    """A string transport that knows abortConnection."""

    def abortConnection(self) -> None:
        self.disconnecting = True
        self.disconnected = True


@pytest.fixture
def health() -> FakeHealth:
    return FakeHealth()


@pytest.fixture
def reactor() -> MemoryReactorClock:
    return MemoryReactorClock()


@pytest.fixture
def http_factory(health: FakeHealth, reactor: MemoryReactorClock) -> http.HttpFactory:
    return http.HttpFactory(health, reactor)


def connect(http_factory: http.HttpFactory) -> tuple[Protocol, Abortable]:
    protocol = http_factory.buildProtocol(None)
    assert protocol is not None
    transport = Abortable()
    protocol.makeConnection(transport)
    return protocol, transport


def ask(
    http_factory: http.HttpFactory, target: str, method: str = "GET", extra: str = ""
) -> tuple[int, dict[str, str], str]:
    protocol, transport = connect(http_factory)
    protocol.dataReceived(f"{method} {target} HTTP/1.1\r\nHost: hub\r\n{extra}\r\n".encode())
    assert transport.disconnecting
    head, _, body = transport.value().decode().partition("\r\n\r\n")
    lines = head.split("\r\n")
    protocol.connectionLost(Failure(ConnectionDone()))
    return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:]), body


def test_livez_answers_while_the_reactor_turns(http_factory: http.HttpFactory) -> None:
    assert ask(http_factory, "/livez")[0] == 200


def test_readyz_says_why_the_hub_is_not_ready(http_factory: http.HttpFactory, health: FakeHealth) -> None:
    """503 with reasons until every listener accepts, 200 from then on."""
    health.why = ["listener ws is not open yet"]
    status, _, body = ask(http_factory, "/readyz")
    assert (status, json.loads(body)) == (
        503,
        {"ready": False, "reasons": ["listener ws is not open yet"]},
    )

    health.why = []
    assert ask(http_factory, "/readyz")[0] == 200


def test_metrics_are_prometheus_text(http_factory: http.HttpFactory) -> None:
    status, headers, body = ask(http_factory, "/metrics")

    assert (status, body) == (200, "iothub_connections 3\n")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize(("is_broken", "status"), [(False, b"200"), (True, b"500")])
def test_long_page_lets_others_have_their_turn(reactor: MemoryReactorClock, is_broken: bool, status: bytes) -> None:
    health = SlicedHealth()
    health.is_broken = is_broken
    protocol, transport = connect(http.HttpFactory(health, reactor))
    protocol.dataReceived(b"GET /metrics/tenants HTTP/1.1\r\nHost: hub\r\n\r\n")

    assert transport.value() == b""
    for _ in range(3):
        reactor.advance(0)
    assert transport.value().split()[1] == status
    assert transport.value().endswith(b"a 1\nb 2\n") is not is_broken
    assert transport.disconnecting


def test_long_page_ends_with_its_reader(reactor: MemoryReactorClock) -> None:
    protocol, transport = connect(http.HttpFactory(SlicedHealth(), reactor))
    protocol.dataReceived(b"GET /metrics/tenants HTTP/1.1\r\nHost: hub\r\n\r\n")
    protocol.connectionLost(Failure(ConnectionDone()))
    reactor.advance(1)

    assert transport.value() == b""
    assert reactor.getDelayedCalls() == []


def test_status_is_json(http_factory: http.HttpFactory) -> None:
    assert json.loads(ask(http_factory, "/status")[2]) == {"version": "0", "connections": 3}


def test_tenant_page_is_asked_by_name_and_page(http_factory: http.HttpFactory, health: FakeHealth) -> None:
    ask(http_factory, "/metrics/tenants")
    assert health.asked == (None, "", 1000)

    ask(http_factory, "/metrics/tenants?tenant=acme&after=aaa&limit=5")
    assert health.asked == ("acme", "aaa", 5)


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1001", "9" * 30, "", "\u0663".encode().decode("latin-1")])
def test_tenant_page_refuses_a_bad_limit(http_factory: http.HttpFactory, health: FakeHealth, limit: str) -> None:
    status = ask(http_factory, f"/metrics/tenants?limit={limit}")[0]

    assert status == 400
    assert health.asked is None


def test_head_has_the_headers_and_no_body(http_factory: http.HttpFactory) -> None:
    status, headers, body = ask(http_factory, "/metrics", method="HEAD")

    assert (status, headers["content-length"], body) == (200, "21", "")


@pytest.mark.parametrize("extra", ["", "Content-Length: 1\r\n"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_not_allowed(http_factory: http.HttpFactory, method: str, extra: str) -> None:
    status, headers, _ = ask(http_factory, "/livez", method=method, extra=extra)

    assert (status, headers["allow"]) == (405, "get, head")


@pytest.mark.parametrize("target", ["/", "/metrics/", "/livez/x", "/../livez", "/%6civez", "//livez"])
def test_unknown_paths_are_not_found(http_factory: http.HttpFactory, target: str) -> None:
    assert ask(http_factory, target)[0] == 404


@pytest.mark.parametrize("extra", ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"])
def test_request_body_is_refused_before_it_is_read(http_factory: http.HttpFactory, extra: str) -> None:
    assert ask(http_factory, "/livez", extra=extra)[0] == 413


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n", b"\x10\x0c\x00\x04MQTT\r\n\r\n"],
)
def test_garbage_is_answered_and_closed(http_factory: http.HttpFactory, garbage: bytes) -> None:
    protocol, transport = connect(http_factory)

    protocol.dataReceived(garbage)

    assert transport.value().startswith(b"HTTP/1.1 400 ")
    assert transport.disconnecting


def test_endless_head_is_cut_at_eight_kib(http_factory: http.HttpFactory) -> None:
    protocol, transport = connect(http_factory)
    protocol.dataReceived(b"GET /livez HTTP/1.1\r\n")

    for _ in range(9):
        protocol.dataReceived(b"X-Filler: " + b"a" * 1000 + b"\r\n")

    assert transport.value().startswith(b"HTTP/1.1 431 ")
    assert transport.disconnecting


def test_only_the_first_request_is_answered(http_factory: http.HttpFactory) -> None:
    """Pipelined requests cannot pile up answers that nobody reads."""
    protocol, transport = connect(http_factory)

    protocol.dataReceived(b"GET /livez HTTP/1.1\r\nHost: hub\r\n\r\n" * 1000)
    protocol.dataReceived(b"GET /livez HTTP/1.1\r\nHost: hub\r\n\r\n" * 1000)

    assert transport.value().count(b"HTTP/1.1 200") == 1


def test_slow_request_is_cut_after_its_time(http_factory: http.HttpFactory, reactor: MemoryReactorClock) -> None:
    """A client that trickles bytes does not keep its connection."""
    protocol, transport = connect(http_factory)
    for _ in range(int(http.CONNECTION_LIFE_S)):
        protocol.dataReceived(b"G")
        reactor.advance(1)

    assert transport.disconnecting


def test_connections_are_bounded(http_factory: http.HttpFactory) -> None:
    connections = [connect(http_factory) for _ in range(http.MAX_CONNECTIONS)]
    assert http_factory.buildProtocol(None) is None

    connections[0][0].connectionLost(Failure(ConnectionDone()))

    assert http_factory.buildProtocol(None) is not None


def test_defect_in_a_counter_is_one_refused_page(http_factory: http.HttpFactory, health: FakeHealth) -> None:
    health.is_broken = True

    status, _, body = ask(http_factory, "/metrics")

    assert status == 500
    assert "counter" not in body
    assert ask(http_factory, "/livez")[0] == 200


def test_requests_are_counted_by_route_and_status(http_factory: http.HttpFactory) -> None:
    ask(http_factory, "/livez")
    ask(http_factory, "/livez")
    ask(http_factory, "/nobody/knows")

    assert http_factory.requests == {("/livez", "200"): 2, ("other", "404"): 1}


def test_listening_uses_address_and_port(http_factory: http.HttpFactory, reactor: MemoryReactorClock) -> None:
    http.listen(reactor, http_factory, "127.0.0.1", 8080)

    assert reactor.tcpServers == [(8080, http_factory, http.MAX_CONNECTIONS, "127.0.0.1")]


def test_port_in_use_is_one_line(http_factory: http.HttpFactory) -> None:
    class Taken(MemoryReactorClock):
        def listenTCP(self, port: int, factory: object, backlog: int = 50, interface: str = "") -> object:
            raise CannotListenError(interface, port, OSError(98, "Address already in use"))

    with pytest.raises(UnavailableError, match=r"http: cannot listen on .* port 8080: Address already in use"):
        http.listen(Taken(), http_factory, "127.0.0.1", 8080)


def get(factory: http.HttpFactory, target: str) -> tuple[Protocol, Abortable]:
    protocol, transport = connect(factory)
    protocol.dataReceived(f"GET {target} HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
    return protocol, transport


def test_answer_that_others_are_asked_for_comes_later(reactor: MemoryReactorClock) -> None:
    """The connection waits, and nothing else does; each answer goes where it was asked for."""
    health = LateHealth()
    factory = http.HttpFactory(health, reactor)
    _, ready = get(factory, "/readyz")
    _, page = get(factory, "/metrics/tenants?after=acme")
    assert (ready.value(), page.value(), factory.requests) == (b"", b"", {})
    health.answers[1].callback(b"a 1\n")
    reactor.pump([0.0] * 4)
    assert page.value().endswith(b"a 1\nNone acme 1000")
    health.answers[0].callback({"ready": False, "reasons": ["none of the workers is ready"]})

    assert ready.value().startswith(b"HTTP/1.1 503")
    assert factory.requests == {("/metrics/tenants", "200"): 1, ("/readyz", "503"): 1}


def test_defect_in_a_later_answer_is_one_refused_page(reactor: MemoryReactorClock) -> None:
    """As at once."""
    health = LateHealth()
    factory = http.HttpFactory(health, reactor)
    _, transport = get(factory, "/metrics")
    health.answers[0].errback(KeyError("counter"))

    assert transport.value().startswith(b"HTTP/1.1 500")


def test_later_answer_for_who_has_gone_is_nobodys(reactor: MemoryReactorClock) -> None:
    """A scraper that gave up leaves nothing behind."""
    health = LateHealth()
    factory = http.HttpFactory(health, reactor)
    protocol, transport = get(factory, "/metrics")
    protocol.connectionLost(Failure(ConnectionDone()))
    health.answers[0].callback(b"a 1\n")

    assert (transport.value(), factory.open_connections) == (b"", 0)
