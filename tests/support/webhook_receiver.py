"""A receiver of webhooks: an HTTP server of the test's own that remembers what it gets and answers as it is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    def is_signed_with(self, secret: str) -> bool:
        """Check the signature as a receiver does."""
        content = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        key = base64.b64decode(secret.removeprefix("whsec_"))
        expected = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        return expected in self.headers["webhook-signature"].split(" ")


class Receiver:
    """`status`: of the answers from now on; `headers`: theirs. `is_silent`: it accepts and answers nothing."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.silence = threading.Event()
        self.silence.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(self.path, headers, body))
                receiver.silence.wait(PATIENCE_S)
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Nobody reads it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the hub closes connections as it likes
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?a=b"

    def of(self, event: str) -> list[Received]:
        """Return the requests with this event."""
        return [each for each in list(self.received) if each.event["event"] == event]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.silence.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()
