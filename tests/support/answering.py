"""A hub that only answers the command table: enough of a running hub for the command line's tests.

Holds the data directory's lock as a hub does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from iothub.base.errors import IotHubError
from iothub.config.datadir import DataDir
from iothub_tenants.accounts import commands
from iothub_tenants.accounts.commands import Command, Json
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore


class AnsweringHub:
    """Takes commands and answers with `answer(command)`; an IotHubError that it raises is the refusal."""

    def __init__(self, path: Path, answer: Callable[[Command], Json] | None) -> None:
        self.data_dir = DataDir(path)
        self.seen: list[tuple[str, str, Json]] = []
        self._answer = answer
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> AnsweringHub:
        self._lock = self.data_dir.lock("iothub serve")
        self._lock.announce("127.0.0.1:1883")
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._lock.release()

    def _work(self) -> None:
        store = AccountStore(sqlite_url(self.data_dir.accounts))
        while self._answer is not None and not self._is_over.wait(0.01):
            for command in commands.take(store):
                self.seen.append((command.tenant, command.verb, command.argument))
                try:
                    commands.answer(store, command.id, self._answer(command))
                except IotHubError as error:
                    commands.fail(store, command.id, error)
        store.close()
