"""Named, bounded pools of threads for blocking calls: nothing blocks the reactor.

Knows no driver: a call's name ("accounts.tenant") says, by its first part, which pool runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Pools by name; fulfils `iothub_services.auth.port.Run`. Invariant: a call whose pool nobody declared is a defect."""

    def __init__(self, reactor: IReactorFromThreads, sizes: dict[str, int]) -> None:
        self._reactor = reactor
        self._pools = {name: ThreadPool(0, size, name=f"iothub-{name}") for name, size in sizes.items()}

    def start(self) -> None:
        for pool in self._pools.values():
            pool.start()

    def stop(self) -> None:
        """Wait for the calls that run and end the threads."""
        for pool in self._pools.values():
            pool.stop()

    def run(self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Run a blocking call in its pool; the Deferred fires on the reactor thread."""
        pool = self._pools[name.partition(".")[0]]
        return deferToThreadPool(self._reactor, pool, call, *args, **kwargs)
