"""A hub that only answers commands and requests: enough of a running hub for the command line's tests.

Holds the data directory's lock as a hub does; has its local socket only if it is to answer there.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from iothub.base.errors import IotHubError
from iothub.config.datadir import DataDir
from iothub.net import admin_frames
from iothub.net.admin_frames import FrameDecoder
from iothub.records.admin_commands import Json as Answer
from iothub.records.admin_commands import Request
from iothub_tenants.accounts import commands
from iothub_tenants.accounts.commands import Command, Json
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore

Answers = Callable[[Request], tuple[Sequence[Answer], Answer]]
"""The rows and the result of a request; an IotHubError that it raises is the refusal."""


class AnsweringHub:
    """Takes commands and answers with `answer(command)`; an IotHubError that it raises is the refusal. Requests: with `asked(request)`."""

    def __init__(self, path: Path, answer: Callable[[Command], Json] | None, asked: Answers | None = None) -> None:
        self.data_dir = DataDir(path)
        self.seen: list[tuple[str, str, Json]] = []
        self.requests: list[Request] = []
        self._answer = answer
        self._asked = asked
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._work)]

    def __enter__(self) -> AnsweringHub:
        self._lock = self.data_dir.lock("iothub serve")
        self._lock.announce("127.0.0.1:1883")
        if self._asked is not None:
            self._listening = socket.socket(socket.AF_UNIX)
            self.data_dir.admin_socket.unlink(missing_ok=True)
            with self.data_dir.admin_address() as address:
                self._listening.bind(address)
            self._listening.listen()
            self._threads.append(threading.Thread(target=self._serve, args=(self._asked,)))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._asked is not None:
            self._listening.shutdown(socket.SHUT_RDWR)  # ends `accept`
        for thread in self._threads:
            thread.join()
        if self._asked is not None:
            self._listening.close()
        self._lock.release()

    def _work(self) -> None:
        store = AccountStore(sqlite_url(self.data_dir.accounts))
        while self._answer is not None and not self._is_over.wait(0.01):
            for command in commands.take_queued(store):
                self.seen.append((command.tenant, command.verb, command.argument))
                try:
                    commands.answer(store, command.id, self._answer(command))
                except IotHubError as error:
                    commands.fail(store, command.id, error)
        store.close()

    def _serve(self, asked: Answers) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection:
                    self._exchange(connection, asked)

    def _exchange(self, connection: socket.socket, asked: Answers) -> None:
        decoder, frames = FrameDecoder(), list[Answer]()
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
