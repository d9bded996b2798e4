"""`iothub.rest.fetching` on sockets: what another server may answer, and what is made of it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from iothub.base.errors import DeniedError, UnavailableError
from iothub.rest import fetching
from iothub.rest.fetching import fetch_json


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        status, content = _ANSWERS.get(self.path, (200, {"body": body, "accept": self.headers["Accept"]}))
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_given: Any) -> None:
        pass


_ANSWERS: dict[str, tuple[int, object]] = {
    "/redirect": (302, {}),
    "/refused": (400, {"error": "invalid_grant"}),
    "/refused-plain": (401, b"no"),
    "/broken": (500, {"error": "x"}),
    "/html": (200, b"<html>"),
    "/list": (200, []),
    "/large": (200, b'"' + b"x" * (1 << 20) + b'"'),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_object_is_returned(server: str) -> None:
    assert fetch_json(f"{server}/x") == {"body": "", "accept": "application/json"}
    assert fetch_json(f"{server}/x", {"code": "a b&c"})["body"] == "code=a+b%26c"


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("/redirect", UnavailableError, "answers 302"),
        ("/refused", DeniedError, "refuses: invalid_grant"),
        ("/refused-plain", DeniedError, "refuses: 401"),
        ("/broken", UnavailableError, "answers 500"),
        ("/html", UnavailableError, "does not answer as it should"),
        ("/list", UnavailableError, "JSON object"),
        ("/large", UnavailableError, "larger than"),
    ],
)
def test_other_answers_are_errors(server: str, path: str, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        fetch_json(server + path)


def test_server_that_is_silent_or_absent_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="timed out"):
            fetch_json(address)
    with pytest.raises(UnavailableError, match="refused"):
        fetch_json(address)
