"""A hub that only answers requests: enough of a running hub for the command line's tests.

Holds the data directory's lock as a hub does; has its local socket only if it is to answer there.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from iothub.base.errors import IotHubError
from iothub.config.datadir import DataDir
from iothub.net import admin_frames
from iothub.net.admin_frames import FrameDecoder
from iothub.records.admin_commands import Json, Request

Answers = Callable[[Request], tuple[Sequence[Json], Json]]
"""The rows and the result of a request; an IotHubError that it raises is the refusal."""


class AnsweringHub:
    """Answers requests with `asked(request)`; None: it has no socket, as a hub that starts."""

    def __init__(self, path: Path, asked: Answers | None = None) -> None:
        self.data_dir = DataDir(path)
        self.requests: list[Request] = []
        self._asked = asked

    def __enter__(self) -> AnsweringHub:
        self._lock = self.data_dir.lock("iothub serve")
        self._lock.announce("127.0.0.1:1883")
        if self._asked is not None:
            self._listening = socket.socket(socket.AF_UNIX)
            self.data_dir.admin_socket.unlink(missing_ok=True)
            with self.data_dir.admin_address() as address:
                self._listening.bind(address)
            self._listening.listen()
            self._thread = threading.Thread(target=self._serve, args=(self._asked,))
            self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._asked is not None:
            self._listening.shutdown(socket.SHUT_RDWR)  # ends `accept`
            self._thread.join()
            self._listening.close()
        self._lock.release()

    def _serve(self, asked: Answers) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, suppress(OSError):  # who asks need not wait for the answer
                    self._exchange(connection, asked)

    def _exchange(self, connection: socket.socket, asked: Answers) -> None:
        decoder, frames = FrameDecoder(), list[Json]()
        while len(frames) < 2:  # hello and request
            frames += decoder.feed(connection.recv(65_536))
        request = admin_frames.request_in(frames[1])
        self.requests.append(request)
        connection.sendall(admin_frames.hello())
        try:
            rows, result = asked(request)
        except IotHubError as error:
            connection.sendall(admin_frames.refusal_frame(error))
        else:
            connection.sendall(b"".join(admin_frames.row_frames(rows)) + admin_frames.result_frame(result))


@contextmanager
def silent_hub(path: Path) -> Iterator[socket.socket]:
    """A hub that takes every request and answers none."""
    data_dir = DataDir(path)
    lock = data_dir.lock("iothub serve")
    with socket.socket(socket.AF_UNIX) as listening:
        with data_dir.admin_address() as address:
            listening.bind(address)
        listening.listen()
        yield listening
    data_dir.admin_socket.unlink()
    lock.release()
