"""Named, bounded pools of threads for blocking calls: nothing blocks the reactor.

Knows no driver: a call's name ("accounts.tenant") says, by its first part, which pool runs it. Twisted's own pool leaves a cycle of
garbage behind with every call, which is memory until the collector comes by, and costs as much as a small query.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

from iothub.base import log as logging
from iothub.base.errors import UnavailableError

log = logging.get(__name__)

STOP_S = 10.0  # so long the calls that run at the end may take
P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple["Deferred[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Pool:
    """Up to `size` threads, begun when a call finds none at leisure. On the reactor thread but for `_serve`.

    Invariants: calls begin in the order in which they came; `open_calls` have no answer yet.
    """

    def __init__(self, reactor: IReactorFromThreads, name: str, size: int) -> None:
        self._reactor = reactor
        self._name = name
        self._size = size
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._is_running = False
        self.open_calls = 0

    def start(self) -> None:
        """Begin with what was submitted."""
        self._is_running = True
        for _ in range(len(self._threads), min(self.open_calls, self._size)):
            self._begin()

    def submit(self, call: _Call) -> None:
        """Have a call made; its Deferred fires on the reactor thread. Raises UnavailableError: there is no thread to make it."""
        if self._is_running and self.open_calls >= len(self._threads) < self._size:
            self._begin()
        self.open_calls += 1
        self._calls.put(call)

    def end(self) -> None:
        """Have the threads end after the calls that were submitted; whatever comes later is not made."""
        self._is_running = False
        for _ in self._threads:
            self._calls.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads that `end` has stopped. False: one still runs; it ends with the process."""
        until = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(until - monotonic(), 0.0))
        left = sum(thread.is_alive() for thread in self._threads)
        if left:
            log.warning("calls did not end in time, giving up", pool=self._name, threads=left)
        self._threads.clear()
        return not left

    def _begin(self) -> None:
        """Begin one more thread; the machine may have none to give, and then those that run do the work."""
        thread = Thread(target=self._serve, name=f"iothub-{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise UnavailableError(f"no thread can be started for {self._name}: {error}") from None
        else:
            self._threads.append(thread)

    def _serve(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            answer, verb, args, kwargs = call
            try:
                result = verb(*args, **kwargs)
            except BaseException:
                result = Failure()  # type: ignore[no-untyped-call]
            self._reactor.callFromThread(self._done, answer, result)
            del call, answer, verb, args, kwargs, result  # nothing is kept while the thread waits

    def _done(self, answer: Deferred[Any], result: Any) -> None:
        self.open_calls -= 1
        if not answer.called:  # else it was cancelled
            answer.callback(result)


class Threads:
    """Pools by name; fulfils `iothub_services.auth.port.Run`. Invariant: a call whose pool nobody declared is a defect."""

    def __init__(self, reactor: IReactorFromThreads, sizes: dict[str, int]) -> None:
        self._pools = {name: Pool(reactor, name, size) for name, size in sizes.items()}

    def start(self) -> None:
        """Begin with what was submitted."""
        for pool in self._pools.values():
            pool.start()

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Wait for the calls that run and end the threads, all of them in this time. False: one still runs."""
        for pool in self._pools.values():
            pool.end()
        until = monotonic() + timeout_s
        is_idle = True
        for pool in self._pools.values():
            is_idle &= pool.join(max(until - monotonic(), 0.0))
        return is_idle

    def run(self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Run a blocking call in its pool; the Deferred fires on the reactor thread. Raises UnavailableError."""
        answer: Deferred[T] = Deferred()
        self._pools[name.partition(".")[0]].submit((answer, call, args, kwargs))
        return answer
