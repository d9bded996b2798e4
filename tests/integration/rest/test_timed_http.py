"""The head of a request has a limit of time: `iothub.rest.timed_http` under uvicorn, on sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import uvicorn

from iothub.rest import timed_http
from iothub.rest.timed_http import TimedH11Protocol
from tests.support.waiting import PATIENCE_S, until

LIMIT_S = 0.5
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def _app(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"up"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(timed_http, "HEAD_S", LIMIT_S)
    opened = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        _app, http=TimedH11Protocol, ws="none", lifespan="off", log_config=None, timeout_keep_alive=int(PATIENCE_S)
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([opened],))
    thread.start()
    until(lambda: server.started, "uvicorn is there")
    yield int(opened.getsockname()[1])
    server.should_exit = True
    thread.join()
    opened.close()


def ask(client: socket.socket) -> None:
    """Make a request, and read the whole answer."""
    client.sendall(REQUEST)
    found = b""
    while not found.endswith(b"up"):
        piece = client.recv(65_536)
        assert piece, found
        found += piece


def seconds_until_closed(client: socket.socket, *, trickles: bool) -> float:
    began = time.monotonic()
    client.settimeout(LIMIT_S / 10)
    while time.monotonic() - began < PATIENCE_S:
        try:
            if trickles:
                client.sendall(b"X")
            if not client.recv(65_536):
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("begins_with", "trickles"),
    [(b"", False), (b"GET / HTTP/1.1\r\n", True), (REQUEST + b"GET / HTTP/1.1\r\n", True)],
    ids=["silent", "first request", "second request"],
)
def test_head_that_does_not_come_is_not_waited_for(port: int, begins_with: bytes, trickles: bool) -> None:
    """What comes byte by byte begins no new time."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)) as client:
        if begins_with.startswith(REQUEST):
            ask(client)
        client.sendall(begins_with.removeprefix(REQUEST))

        assert LIMIT_S / 2 < seconds_until_closed(client, trickles=trickles) < PATIENCE_S


def test_connection_that_is_idle_after_a_request_stays(port: int) -> None:
    """That limit is uvicorn's."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)) as client:
        ask(client)
        client.settimeout(2 * LIMIT_S)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(PATIENCE_S)
        ask(client)
