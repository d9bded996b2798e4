"""One limits object per listener: how many clients, how fast, from where. The same for all transports and both twins.

Knows no sockets and no MQTT: it counts and answers.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from iothub.base.clock import Clock
from iothub.base.reasons import Reason
from iothub.net.cidr import Networks
from iothub.net.descriptors import REFUSED_AT_ONCE, UNLIMITED, Descriptors
from iothub.net.listener_info import ListenerInfo

VISITORS = 256  # who may still ask at a narrow gate, to hear no; each for the connect time-out at most
ACCEPTS_PER_EVENT = 64  # enough to drain a storm, few enough to let traffic in between


class Refused(NamedTuple):
    """Why a client is not let in: `rule` says which limit or list decided."""

    reason: Reason
    rule: str


ADDRESS_DENIED = Refused(Reason.ADDRESS_DENIED, "listener_address_denied")
NO_DESCRIPTORS = Refused(Reason.FILE_DESCRIPTORS, Reason.FILE_DESCRIPTORS.word)
TOO_MANY = Refused(Reason.OVERLOAD, "max_connections")
TOO_MANY_HANDSHAKES = Refused(Reason.OVERLOAD, "max_handshakes")
SHORT_OF_MEMORY = Refused(Reason.OVERLOAD, "memory_limit")
BUFFERS_FULL = Refused(Reason.OVERLOAD, "buffered_bytes")


class Gate:
    """Counts of one listener.

    Invariants: `connections` is the number of clients between `enter` and `leave`; 0 <= `handshakes` <= `connections`.
    """

    def __init__(self, listener: ListenerInfo, clock: Clock, descriptors: Descriptors | None = None) -> None:
        """`descriptors`: those of the process, which all gates share; None: they are no limit."""
        self.connections = 0
        self.handshakes = 0
        self.accepted = 0
        self.refused: Counter[Reason] = Counter()
        self._descriptors = descriptors or Descriptors(UNLIMITED)
        self._is_narrow = False
        self._clock = clock
        self._rate_per_s = -1.0
        self.apply(listener)

    def apply(self, listener: ListenerInfo) -> None:
        """Hold other limits and rules from now on; who is in stays."""
        self.listener = listener
        self._most = listener.max_connections
        if self._is_narrow:
            self._most = min(self._most, self.connections + VISITORS)
        self.proxies = Networks(listener.proxy_trusted)
        self._allow = Networks(listener.allow)
        self._deny = Networks(listener.deny)
        self._has_rules = bool(self.proxies or self._allow or self._deny)
        if listener.accept_rate_per_s != self._rate_per_s:
            self._rate_per_s = listener.accept_rate_per_s
            self._tokens = self._burst = max(1.0, self._rate_per_s)
            self._filled_at = self._clock.monotonic()

    def allowance(self) -> int:
        """How many accepts the rate and the free descriptors leave now, at most 64. Without any, a few still: those are refused."""
        most = min(ACCEPTS_PER_EVENT, self._descriptors.room + REFUSED_AT_ONCE)
        rate = self._rate_per_s
        if rate <= 0:
            return most
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * rate)
        self._filled_at = now
        return max(0, min(most, int(self._tokens)))

    def set_narrow(self, *, is_narrow: bool) -> None:
        """While the hub is short of memory: a few more than are there now, so that they hear why not, and a flood costs nothing."""
        if is_narrow and not self._is_narrow:
            self._most = min(self.listener.max_connections, self.connections + VISITORS)
        elif not is_narrow:
            self._most = self.listener.max_connections
        self._is_narrow = is_narrow

    def enter(self, ip: str, *, has_handshake: bool) -> Refused | None:
        """Count a client in, or say why not."""
        self._tokens -= 1
        descriptors = self._descriptors
        is_doubtful = (
            self._has_rules
            or has_handshake
            or self.connections >= self._most
            or descriptors.clients >= descriptors.servable
        )
        refused = self._refusal(ip, has_handshake=has_handshake) if is_doubtful else None
        if refused is not None:
            self.count_refusal(refused)
            return refused
        self.connections += 1
        descriptors.count_in()
        self.handshakes += has_handshake
        self.accepted += 1
        return None

    def count_refusal(self, refused: Refused) -> None:
        self.refused[refused.reason] += 1
        if refused is NO_DESCRIPTORS:
            self._descriptors.count_refusal()

    def may_come(self, ip: str) -> bool:
        """Hold a client's own address (behind a proxy: the announced one) against `deny` and `allow`."""
        if ip in self._deny:
            return False
        return not self._allow or ip in self._allow

    def opened(self) -> None:
        self.handshakes -= 1

    def leave(self, *, had_handshake: bool) -> None:
        self.connections -= 1
        self._descriptors.count_out()
        self.handshakes -= had_handshake

    def _refusal(self, ip: str, *, has_handshake: bool) -> Refused | None:
        if self._has_rules and not self._may_reach(ip):
            return ADDRESS_DENIED
        if self.connections >= self._most:
            return SHORT_OF_MEMORY if self._most < self.listener.max_connections else TOO_MANY
        if not self._descriptors.room:
            return NO_DESCRIPTORS
        if has_handshake and self.handshakes >= self.listener.max_handshakes:
            return TOO_MANY_HANDSHAKES
        return None

    def _may_reach(self, ip: str) -> bool:
        """Whether this neighbour may connect: with proxies only they may; whom they bring is asked once that is known."""
        return ip in self.proxies if self.proxies else self.may_come(ip)
