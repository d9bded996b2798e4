"""How many clients the file descriptors of this process allow, over all listeners, and how many are kept back for everything else.

Knows no listener and no alarm: gates count clients in and out, the hub measures what else is open.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

UNLIMITED = 1 << 30
REFUSED_AT_ONCE = (
    4  # clients that are accepted only to be closed, at one listener: each needs a descriptor for a moment
)
_LEAST_RESERVE, _MOST_RESERVE = 16, 256  # for HTTP, the local socket, stores and jobs that open more than they have now
_RESERVE_PART = 16  # of the limit, in between
_COUNTED_CLIENTS = 10_000  # with more, counting takes milliseconds of the reactor's time
_FULL, _RELIEVED = 0.9, 0.8  # of `servable`


def raise_file_limit() -> None:
    """Take every descriptor that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def file_limit(process_id: int = 0) -> int:
    """Return how many descriptors a process may open; 0: this one. Raises OSError: it is gone, or another user's."""
    soft, _ = resource.prlimit(process_id, resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def count_open() -> int:
    """Return how many descriptors of this process are open."""
    return len(os.listdir("/proc/self/fd")) - 1  # without that of the listing


def reserve_of(limit: int) -> int:
    """Return how many descriptors of the limit are kept back."""
    return min(max(limit // _RESERVE_PART, _LEAST_RESERVE), _MOST_RESERVE)


def least_limit(needed: int) -> int:
    """Return the lowest limit that leaves so many descriptors beside what is kept back of it."""
    return needed + min(max((needed - 1) // (_RESERVE_PART - 1), _LEAST_RESERVE), _MOST_RESERVE)


class Descriptors:
    """The process's descriptors. On the reactor thread.

    Invariants: `clients` is the number of clients of all gates; `clients` <= `servable`: who is there is served.
    """

    def __init__(self, limit: int, count: Callable[[], int] = count_open, *, own: int = 0) -> None:
        """`own`: how many are open without any client."""
        self.limit = limit
        self.reserve = reserve_of(limit)
        self.own = own
        self.others = 0  # most descriptors seen open that are no clients'
        self.clients = 0
        self.servable = self._servable()
        self.refused = 0
        self.is_low = False
        self._count = count
        self._refused_before = 0

    @property
    def room(self) -> int:
        """How many more clients there may be."""
        return max(self.servable - self.clients, 0)

    @property
    def open(self) -> int:
        """About how many are open."""
        return self.others + self.clients

    def count_in(self) -> None:
        self.clients += 1

    def count_out(self) -> None:
        self.clients -= 1

    def count_refusal(self) -> None:
        """Count a client that was refused because no descriptor was left."""
        self.refused += 1

    def measure(self) -> None:
        """Count what else is open, and see whether clients come close to what is left."""
        try:
            if self.clients <= _COUNTED_CLIENTS:
                self.others = max(self.others, self._count() - self.clients)
                self.servable = self._servable()
        except OSError:  # none is left to count with
            self.is_low = True
            return
        was_refused = self.refused > self._refused_before
        self._refused_before = self.refused
        level = _RELIEVED if self.is_low else _FULL
        self.is_low = was_refused or self.clients >= self.servable * level

    def limit_for(self, clients: int) -> int:
        """Return the limit that so many clients need."""
        return least_limit(max(self.own, self.others) + clients)

    def _servable(self) -> int:
        """What comes on top of `own` takes half of the reserve, before fewer clients are let in."""
        taken = max(self.own, self.others - self.reserve // 2)
        return max(self.limit - self.reserve - taken, self.clients)
