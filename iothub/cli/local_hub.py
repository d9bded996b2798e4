"""Requests to the running hub of a data directory over its local socket; blocking, one connection per request.

Knows no verb: `iothub.records.admin_commands` names them. Its errors say who does not answer and what to do.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NamedTuple

from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir
from iothub.net import admin_frames
from iothub.net.admin_frames import FrameDecoder
from iothub.records.admin_commands import Json, Query, Request

SILENCE_S = 15.0  # longer than a hub waits for the session log before it refuses (10 s)
_READ_BYTES = 64 << 10
_CLOSED = (
    "the hub closed the connection without an answer: it is stopping or has too many requests; see `iothub status`"
)


class Answer(NamedTuple):
    """What a hub has answered."""

    rows: list[Json]
    result: Json


class LocalHub:
    """Sends requests to the hub that holds a data directory."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir

    def ask(self, verb: Query, tenant: str, argument: Json, silence_s: float = SILENCE_S) -> Answer:
        """Raises UnavailableError: no hub answers here, or not within `silence_s`. Any other IotHubError: the hub's own refusal."""
        with self._connect() as connection:
            connection.settimeout(silence_s)
            try:
                connection.sendall(admin_frames.hello() + admin_frames.request_frame(Request(verb, tenant, argument)))
                return _read(_frames(connection))
            except TimeoutError:
                raise UnavailableError(f"no answer within {silence_s:.0f} s; see `iothub status`") from None
            except OSError:
                raise UnavailableError(_CLOSED) from None

    def require(self) -> None:
        """Raises UnavailableError: no hub runs here."""
        if self._data_dir.holder() is None:
            raise UnavailableError(
                f"no hub runs in {self._data_dir.path}: only a running hub can do this (sessions, queues, retained messages, a reload); "
                "start it with `iothub serve`"
            )

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.settimeout(SILENCE_S)
        try:
            with self._data_dir.admin_address() as address:
                connection.connect(address)
        except OSError as error:
            connection.close()
            self.require()
            raise UnavailableError(self._why_not(error)) from None
        return connection

    def _why_not(self, error: OSError) -> str:
        """Say why the process that holds the directory does not answer."""
        starting = (self._data_dir.read_hub() or {}).get("starting")
        if starting:
            return f"the hub is starting and does not answer yet: {starting}; see `iothub status`"
        return (
            f"{self._data_dir.path} is in use by {self._data_dir.holder() or 'another process'}, which does not answer on "
            f"{self._data_dir.admin_socket.name}: {error.strerror or error}"
        )


def _frames(connection: socket.socket) -> Iterator[Json]:
    """Yield what the hub says behind its hello. Raises UnavailableError: it has closed the connection."""
    decoder, is_greeted = FrameDecoder(), False
    while data := connection.recv(_READ_BYTES):
        for frame in decoder.feed(data):
            if is_greeted:
                yield frame
            else:
                admin_frames.check_hello(frame)
                is_greeted = True
    raise UnavailableError(_CLOSED)


def _read(frames: Iterator[Json]) -> Answer:
    gathered: list[Json] = []
    for frame in frames:
        rows = admin_frames.rows_in(frame)
        if rows is None:
            return Answer(gathered, admin_frames.result_in(frame))
        gathered += rows
    raise AssertionError("`_frames` does not end without an answer")
