"""A reactor of a test's own in a thread of its own, so that a test can use blocking sockets as the client.

Knows nothing of the hub.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar

from iothub.net.hub_reactor import HubReactor

T = TypeVar("T")
PATIENCE_S = 300.0  # only what hangs comes to it


class ReactorThread:
    """Runs from `__enter__` to `__exit__`; `call` runs a function on the reactor thread and returns its result."""

    def __init__(self) -> None:
        self.reactor = HubReactor()
        self._thread = threading.Thread(target=self._run, name="reactor", daemon=True)

    def __enter__(self) -> ReactorThread:
        self._thread.start()
        self.call(lambda: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reactor.callFromThread(self.reactor.stop)
        self._thread.join(PATIENCE_S)
        self.reactor.removeAll()
        for reader in self.reactor._internalReaders:
            reader.connectionLost(None)
        self.reactor._poller.close()
        if self._thread.is_alive():
            raise AssertionError("the reactor did not stop")

    def call(self, function: Callable[[], T]) -> T:
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self.reactor.callFromThread(run)
        return answer.result(PATIENCE_S)

    def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true` holds on the reactor thread: it is asked in every turn of the reactor that follows."""
        answer: Future[None] = Future()

        def ask() -> None:
            try:
                if is_true():
                    answer.set_result(None)
                else:
                    self.reactor.callLater(0.005, ask)
            except BaseException as error:
                answer.set_exception(error)

        self.reactor.callFromThread(ask)
        answer.result(PATIENCE_S)

    def _run(self) -> None:
        self.reactor.run(installSignalHandlers=False)
