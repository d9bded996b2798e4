"""The local socket's side in the hub: one request to a connection, rows at the asker's pace, and nobody who can hold it up."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from iothub.base.errors import NotFoundError, UnavailableError
from iothub.config.datadir import DataDir
from iothub.net import admin_frames, admin_server
from iothub.net.admin_frames import FrameDecoder
from iothub.net.admin_server import MAX_CONNECTIONS, PATIENCE_S, AdminExchange, AdminServer, AdminSocket
from iothub.records.admin_commands import Json, Reply, Request

HELLO = admin_frames.hello()
REQUEST = Request("session.list", "acme", {"limit": 1})
ASKED = HELLO + admin_frames.request_frame(REQUEST)


class Abortable(StringTransport):
    is_aborted = False

    def abortConnection(self) -> None:
        self.is_aborted = True


class Harness:
    """A server whose answers the test gives, and its askers."""

    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        self.requests: list[Request] = []
        self.reply: Reply | None = None
        self.result: Deferred[Json] = Deferred()
        self.server = AdminServer(self._answer, self.reactor)

    async def _answer(self, request: Request, reply: Reply) -> Json:
        self.requests.append(request)
        self.reply = reply
        return await self.result

    def ask(self, data: bytes = ASKED) -> tuple[AdminExchange, Abortable]:
        exchange, transport = self.server.buildProtocol(None), Abortable()
        assert exchange is not None
        exchange.makeConnection(transport)
        exchange.dataReceived(data)
        return exchange, transport

    def send(self, *rows: Json) -> Deferred[None]:
        assert self.reply is not None
        return Deferred.fromCoroutine(self.reply.rows(rows))


def heard(transport: Abortable) -> list[Json]:
    return list(FrameDecoder().feed(transport.value()))


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_request_is_answered_in_rows_and_a_result(harness: Harness) -> None:
    _, transport = harness.ask()
    harness.send({"name": "a"})
    harness.send()
    harness.result.callback({"next": None})

    assert harness.requests == [REQUEST]
    assert heard(transport) == [{"protocol": 1}, {"rows": [{"name": "a"}]}, {"rows": []}, {"result": {"next": None}}]
    assert transport.disconnecting


def test_refusal_is_answered_with_its_exit_code(harness: Harness) -> None:
    _, transport = harness.ask()
    harness.result.errback(NotFoundError("no such tenant"))

    assert heard(transport)[1:] == [{"error": "no such tenant", "exit_code": 3}]
    assert transport.disconnecting


def test_defect_is_answered_too(harness: Harness) -> None:
    _, transport = harness.ask()
    harness.result.errback(KeyError("oops"))

    assert heard(transport)[1:] == [{"error": "internal error; see the hub's log", "exit_code": 1}]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 1),
        (admin_frames.request_frame(REQUEST), 1),
        (admin_frames.encode({"protocol": 9}), 4),
        (HELLO + HELLO, 1),
    ],
)
def test_what_is_no_request_is_refused_and_closed(harness: Harness, data: bytes, code: int) -> None:
    exchange, transport = harness.ask(data)
    exchange.dataReceived(ASKED)

    assert harness.requests == []
    assert [frame.get("exit_code") for frame in heard(transport)] == [None, code]
    assert transport.disconnecting


def test_second_request_ends_the_first_ones_answer(harness: Harness) -> None:
    _, transport = harness.ask(ASKED + admin_frames.request_frame(REQUEST))
    failures: list[Failure] = []
    harness.send({"name": "a"}).addErrback(failures.append)
    harness.result.callback({})

    assert [frame.get("exit_code") for frame in heard(transport)] == [None, 1]
    assert [failure.type for failure in failures] == [UnavailableError]


def test_rows_wait_until_the_asker_has_read(harness: Harness) -> None:
    exchange, transport = harness.ask()
    exchange.pauseProducing()
    sent = harness.send({"name": "a"})
    assert (sent.called, len(heard(transport))) == (False, 1)

    exchange.resumeProducing()

    assert sent.called
    assert len(heard(transport)) == 2


def test_asker_that_does_not_read_on_is_cut(harness: Harness) -> None:
    exchange, transport = harness.ask()
    exchange.pauseProducing()
    failures: list[Failure] = []
    harness.send({"name": "a"}).addErrback(failures.append)

    harness.reactor.advance(PATIENCE_S - 1)
    assert not transport.is_aborted
    harness.reactor.advance(1)
    assert transport.is_aborted
    exchange.connectionLost(Failure(ConnectionDone()))

    assert [failure.type for failure in failures] == [UnavailableError]


@pytest.mark.parametrize("data", [b"", HELLO, ASKED[:-1]])
def test_asker_without_a_request_is_cut(harness: Harness, data: bytes) -> None:
    _, transport = harness.ask(data)
    harness.reactor.advance(PATIENCE_S)

    assert transport.is_aborted


def test_long_work_on_an_answer_is_not_cut(harness: Harness) -> None:
    """Who waits for it decides how long."""
    _, transport = harness.ask()
    harness.reactor.advance(10 * PATIENCE_S)

    assert not transport.is_aborted


def test_answer_that_is_not_fetched_is_cut(harness: Harness) -> None:
    _, transport = harness.ask()
    harness.result.callback({})
    harness.reactor.advance(PATIENCE_S)

    assert transport.is_aborted


def test_asker_that_leaves_is_forgotten_when_its_work_is_done(harness: Harness) -> None:
    """Until then it is one of those that are bounded."""
    exchange, transport = harness.ask()
    exchange.connectionLost(Failure(ConnectionDone()))
    assert harness.server.open_connections == 1
    harness.result.callback({})

    assert heard(transport) == [{"protocol": 1}]
    assert harness.server.open_connections == 0
    assert harness.reactor.getDelayedCalls() == []


def test_connections_are_bounded(harness: Harness) -> None:
    exchanges = [harness.ask(b"")[0] for _ in range(MAX_CONNECTIONS)]
    assert harness.server.buildProtocol(None) is None

    exchanges[0].connectionLost(Failure(ConnectionDone()))

    assert harness.server.buildProtocol(None) is not None


class Listening(MemoryReactorClock):
    """A reactor that binds a real socket, and serves nobody."""

    def listenUNIX(self, address: Any, factory: Any, backlog: int = 50, mode: int = 0o666, *_: Any) -> Any:
        port = super().listenUNIX(address, factory, backlog, mode)
        Path(address).touch(mode=mode, exist_ok=False)
        return port


def test_socket_takes_the_place_of_one_that_was_left_over(harness: Harness, tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    data_dir.admin_socket.touch(mode=0o644)

    opened = AdminSocket(Listening(), harness.server, data_dir)

    assert stat.S_IMODE(data_dir.admin_socket.stat().st_mode) == 0o600
    data_dir.admin_socket.unlink()
    opened.close()
    assert data_dir.admin_socket.exists(), "Twisted would stumble over its absence"


def cannot(error: OSError | CannotListenError) -> Callable[..., object]:
    def listen(*_: object) -> object:
        raise error

    return listen


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), CannotListenError("", "", OSError(28, "No space left on device"))]
)
def test_socket_that_cannot_be_opened_is_named(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | CannotListenError
) -> None:
    monkeypatch.setattr(harness.reactor, "listenUNIX", cannot(error))

    with pytest.raises(UnavailableError, match=r"admin\.sock: cannot be opened: No space left on device"):
        admin_server.AdminSocket(harness.reactor, harness.server, DataDir(tmp_path))
