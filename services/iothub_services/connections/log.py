"""One log line for each connect, disconnect and refused CONNECT, at a bounded rate for each tenant; keeps the refused ones.

Knows no packet and no account. The lines are written a moment later, many at once: the answer to a client does not wait for the log, so its
time says nothing about what was logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from iothub.base import log
from iothub.base.clock import Clock
from iothub.base.reasons import Reason
from iothub_services.connections.rejected import NO_TENANT, Client, Rejected, RejectedConnects

WRITE_DELAY_S = 0.05
ALL_TENANTS = 10  # times the lines of one tenant are written in a window, for all tenants together
NAMED = 100  # tenants whose left-out lines are reported one by one after a window
PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5"}

Later = Callable[[float, Callable[[], None]], object]

_CONNECTED = "client connected"
_DISCONNECTED = "client disconnected"
_REFUSED = "client refused"


class LineRate(NamedTuple):
    """Maximum number of lines of one tenant in `seconds`; None in its place: no limit."""

    lines: int
    seconds: float


class ConnectionLines(NamedTuple):
    """Which lines are written. `is_written`: False: none; the refused are kept all the same."""

    rate: LineRate | None
    is_written: bool


class _Line(NamedTuple):
    sentence: str
    client: Client
    reason: str
    rule: str


class ConnectionLog:
    """On the reactor thread.

    Invariants: refusals do not use up the lines of connects and disconnects, nor the other way round; what is left out is counted, and the
    count is logged at the end of its window.
    """

    def __init__(self, clock: Clock, later: Later, settings: ConnectionLines) -> None:
        self.rejected = RejectedConnects()
        self.left_out = 0  # since the start, for the metric
        self._clock = clock
        self._later = later
        self._lines: list[_Line] = []
        self._counts: Counter[tuple[bool, int]] = Counter()  # in this window, by is-refusal and tenant id
        self._totals: Counter[bool] = Counter()
        self._missing: Counter[tuple[int, str]] = Counter()  # left out in this window, by tenant id and name
        self._used_up: set[int] = (
            set()
        )  # ids of tenants without another line for connects and disconnects in this window
        self._is_window_open = False
        self._log = log.get(__name__, has_own_limit=True)
        self.apply(settings)

    def apply(self, settings: ConnectionLines) -> None:
        """Write lines by these settings from now on."""
        self._is_written = settings.is_written
        self._rate = settings.rate
        self._used_up.clear()

    def has_line(self, tenant_id: int, tenant: str) -> bool:
        """Say whether a connect or disconnect of the tenant may have a line; without one it is counted, and nobody need describe the client."""
        if not self._is_written:
            return False
        if tenant_id in self._used_up:
            self.left_out += 1
            self._missing[tenant_id, tenant] += 1
            return False
        return True

    def connected(self, client: Client) -> None:
        if self._is_line_free(client, is_refusal=False):
            self._write_soon(_Line(_CONNECTED, client, "", ""))

    def disconnected(self, client: Client, reason: Reason) -> None:
        if self._is_line_free(client, is_refusal=False):
            self._write_soon(_Line(_DISCONNECTED, client, reason.word, ""))

    def refused(self, client: Client, reason: Reason, rule: str) -> None:
        """`rule`: what decided: a word, or a sentence of the program."""
        self.rejected.add(Rejected(int(self._clock.wall() * 1000), client, reason.word, rule))
        if self._is_line_free(client, is_refusal=True):
            self._write_soon(_Line(_REFUSED, client, reason.word, rule))

    def refused_unread(self, listener: str, address: str, reason: Reason, rule: str) -> None:
        """A client was refused before its CONNECT was read, so nobody knows who it is."""
        self.refused(Client(NO_TENANT, "", "", "", address, listener, 0), reason, rule)

    def write(self) -> None:
        """Write the lines that wait."""
        lines, self._lines = self._lines, []
        for line in lines:
            fields = {"tenant": line.client.tenant, "device": line.client.device, "client_id": line.client.client_id}
            fields |= {"address": line.client.address, "listener": line.client.listener}
            fields |= {"protocol": PROTOCOLS.get(line.client.version, "")}
            if line.reason:
                fields["reason"] = line.reason
            if line.rule:
                fields["rule"] = line.rule
            self._log.info(line.sentence, **fields)

    def _write_soon(self, line: _Line) -> None:
        if not self._lines:
            self._later(WRITE_DELAY_S, self.write)
        self._lines.append(line)

    def _is_line_free(self, client: Client, *, is_refusal: bool) -> bool:
        """Take one line of the tenant's, or count it as left out."""
        if not self._is_written:
            return False
        rate = self._rate
        if rate is None:
            return True
        if not self._is_window_open:
            self._is_window_open = True
            self._later(rate.seconds, self._end_window)
        key = (is_refusal, client.tenant_id)
        if self._counts[key] >= rate.lines or self._totals[is_refusal] >= rate.lines * ALL_TENANTS:
            if not is_refusal:
                self._used_up.add(client.tenant_id)
            self.left_out += 1
            self._missing[client.tenant_id, client.tenant if client.tenant_id != NO_TENANT else ""] += 1
            return False
        self._counts[key] += 1
        self._totals[is_refusal] += 1
        return True

    def _end_window(self) -> None:
        missing = self._missing.most_common()
        for (_, tenant), count in missing[:NAMED]:
            self._log.info("connection lines left out", tenant=tenant, count=count)
        if others := missing[NAMED:]:
            count = sum(count for _, count in others)
            self._log.info("connection lines left out", tenants=len(others), count=count)
        self._counts.clear()
        self._totals.clear()
        self._missing.clear()
        self._used_up.clear()
        self._is_window_open = False
