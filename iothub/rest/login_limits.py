"""How often a login may fail: from one address with one name, and from one address at all. And how many failures leave a line.

Knows no password. Nobody is locked out by what somebody else does elsewhere: a name that is tried from everywhere is protected by its password.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network

WINDOW_S = 60.0
MOST_OF_NAME = 5
MOST_OF_ADDRESS = 30
MOST_KNOWN = 10_000
LINES = 60
LINES_WINDOW_S = 3600.0
_IPV6_PREFIX = 64  # what one customer of a provider has

_Key = tuple[str, str]


class FailureLimits:
    """Failures of the last minute. Used by the event loop alone.

    An attempt counts from its beginning, so that many at once count, too; one that succeeds is taken back.

    Invariant: at most MOST_KNOWN keys; the one that was used longest ago goes first.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: OrderedDict[_Key, deque[float]] = OrderedDict()

    def begin(self, name: str, address: str) -> float:
        """Count an attempt and return 0; or, for one too many, how many seconds to wait."""
        now = self._monotonic()
        found = [(self._times(key, now), most) for key, most in _keys(name, address)]
        wait_s = max((times[0] + WINDOW_S - now for times, most in found if len(times) >= most), default=0.0)
        if wait_s > 0:
            return wait_s
        for times, _most in found:
            times.append(now)
        return 0.0

    def take_back(self, name: str, address: str) -> None:
        """An attempt was no failure."""
        for key, _most in _keys(name, address):
            times = self._known.get(key)
            if times:
                times.pop()

    def _times(self, key: _Key, now: float) -> deque[float]:
        times = self._known.setdefault(key, deque())
        self._known.move_to_end(key)
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return times


class FailureLines:
    """Says which failures leave a line in log and audit log: at most LINES in an hour. Used by the event loop alone."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._times: deque[float] = deque()
        self._left_out = 0

    def next_line(self) -> int | None:
        """Return how many failures before this one left no line; None: this one leaves none, either."""
        now = self._monotonic()
        while self._times and self._times[0] <= now - LINES_WINDOW_S:
            self._times.popleft()
        if len(self._times) >= LINES:
            self._left_out += 1
            return None
        self._times.append(now)
        left_out, self._left_out = self._left_out, 0
        return left_out


def _keys(name: str, address: str) -> tuple[tuple[_Key, int], tuple[_Key, int]]:
    network = _network(address)
    return ((network, name), MOST_OF_NAME), ((network, ""), MOST_OF_ADDRESS)


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or ip_network((found, _IPV6_PREFIX), strict=False))
