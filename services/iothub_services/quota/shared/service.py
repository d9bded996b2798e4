"""Keeps the hub registered in the ledger: it joins, renews its lease and reports changes several times a second, and joins again after a loss.

Knows the parts by reference and no tenant.

Invariant: after any loss - an answer, the lease, everything in Redis - the hub takes a new name, declares everything under it, and only then gives up
the old name. So what it holds is never counted too little.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.keys import Keys
from iothub_services.quota.shared.lease import Caller, LapsedError, Lease
from iothub_services.quota.shared.ledger_client import Later, LedgerClient
from iothub_services.quota.shared.meters import LeasedRates
from iothub_services.quota.shared.sums import SharedWindows
from iothub_services.quota.usage import Usage

TURN_S = 0.1
RESTLESS_S = 0.05  # while demands for rates change
AGAIN_S = 0.5
DECLARE_S = 600.0  # everything is reported so often, because the keys in Redis expire

log = logging.get(__name__)


class Mode(Enum):
    """How limits hold now."""

    SHARED = "shared"  # over all hubs
    INITIALISING = "initialising"  # the ledger was empty: hubs declare what they have, nothing more is granted
    DEGRADED = "degraded"  # the ledger does not answer: every hub keeps its last share


class SharedQuota:
    """On the reactor thread. One turn at a time."""

    def __init__(
        self,
        call: Caller,
        keys: Keys,
        place: str,
        clock: Clock,
        later: Later,
        usage: Usage,
        on_mode: Callable[[Mode, str], None],
    ) -> None:
        """`place`: names this data directory. `on_mode` is called at every change of `mode`, with the reason."""
        self._clock = clock
        self._later = later
        self._on_mode = on_mode
        self._lease = Lease(call, keys, place, clock)
        self.ledger_client = LedgerClient(self._lease, clock, later, self._lost)
        self.rates = LeasedRates(self._lease, clock)
        self.windows = SharedWindows(self._lease, usage)
        self._declared_at = 0.0
        self._is_over = False
        self._turning: Deferred[None] | None = None
        self.mode = Mode.INITIALISING
        self.hubs = 0  # that hold a lease, this one among them
        self.returns = 0  # how often it had to come back

    def start(self) -> None:
        self._begin()

    async def stop(self) -> None:
        """Turn no more; give back what this hub holds. Raises BackendError: that ends with the lease."""
        self._is_over = True
        if self._turning is not None:
            await self._turning
        self.ledger_client.fail(LapsedError("this hub is leaving the quota ledger"))
        self.ledger_client.lapse()
        await self._lease.leave()

    def _begin(self) -> None:
        if not self._is_over:
            self._turning = Deferred.fromCoroutine(self._turn())

    async def _turn(self) -> None:
        try:
            await self.turn()
        except BackendError as error:
            self._lost(error)
        except Exception as error:  # the service loop's edge: a defect in one turn must not end them
            log.error("defect in the quota ledger", exc_info=error)
            self._lease.lose()
        finally:
            self._turning = None
            self._later(self.pause_s, self._begin)

    @property
    def pause_s(self) -> float:
        """How long until the next turn."""
        if not self._lease.name:
            return AGAIN_S
        return RESTLESS_S if self.rates.is_restless else TURN_S

    async def turn(self) -> None:
        """One look at the ledger: what others want, and what has changed here. Raises LapsedError, BackendError."""
        if not self._lease.name:
            await self._join()
        began = self._clock.monotonic()  # an answer may have waited while this hub was stopped
        answer = await self._lease.ask(scripts.TURN, [self._lease.keys.wanted], scripts.WANTED_MS)
        initialising, hubs, *wanted = answer
        self.hubs = hubs if isinstance(hubs, int) else 1
        self.ledger_client.heard_at = began
        for name in wanted:
            if isinstance(name, bytes):
                self.ledger_client.wanted(name.decode())
                self.rates.wanted(name.decode())
        if not initialising and self.mode is not Mode.SHARED:
            self.rates.change_all()  # all hubs have declared: now rates are divided
            self.windows.change_all()  # and what others have used is read
        self._set_mode(
            Mode.INITIALISING if initialising else Mode.SHARED, "the ledger was empty; all hubs declare what they have"
        )
        if began - self._declared_at > DECLARE_S:
            self._declared_at = began
            self.ledger_client.change_all()
            self.rates.change_all()
        await self.ledger_client.report()
        await self.rates.report(self.hubs)
        await self.windows.report()

    async def _join(self) -> None:
        """Take a new name, declare everything, and let old names go."""
        began = self._clock.monotonic()
        await self._lease.enter()
        self.ledger_client.is_away = False
        self.ledger_client.change_all()
        self.rates.change_all()
        self.windows.change_all()
        await self.ledger_client.report_all()
        await self._lease.claim()
        self._declared_at = self.ledger_client.heard_at = began
        self.ledger_client.is_open = True

    def _lost(self, error: BackendError) -> None:
        """Something went wrong with the name that we have: it is not used again. Limits hold by what every hub was granted last."""
        if isinstance(error, LapsedError) and error.is_past:
            return
        self._lease.lose()
        self.returns += 1
        if isinstance(error, LapsedError):
            self.ledger_client.lapse()  # callers go on waiting: the hub joins again in a moment
        else:
            self.ledger_client.fail(error)
            self._set_mode(Mode.DEGRADED, str(error))

    def _set_mode(self, mode: Mode, why: str) -> None:
        if mode is not self.mode:
            self.mode = mode
            self._on_mode(mode, why)
