"""How many session events a hub leaves out because nobody can read them: counted once each, said soon and then once a minute at most.

Knows no log: whoever reads one tells what it has left out. The first one has an alarm besides, which names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from iothub.base import log as logging
from iothub_services.events.port import NOWHERE, DamagedEventError, Offsets, raised, reached
from iothub_services.group_thread import CallInReactor

log = logging.get(__name__)

SOON_S = 1.0  # what is damaged together is told together
PERIOD_S = 60.0

OnDamage = Callable[[DamagedEventError], None]


def untold(_error: DamagedEventError) -> None:
    """Nobody counts."""


class DamagedEvents:
    """The count. `found` is for any thread.

    Invariants: everybody who reads goes up in each partition, so what is not above what was counted was counted.
    """

    def __init__(self, call_in_reactor: CallInReactor, later: Callable[[float, Callable[[], None]], object]) -> None:
        self._call_in_reactor = call_in_reactor
        self._later = later
        self._lock = threading.Lock()
        self._counted: Offsets = NOWHERE
        self._told = 0
        self._last = ""
        self._is_telling = False
        self.total = 0

    def found(self, error: DamagedEventError) -> None:
        """Count an event that is left out, unless another reader has."""
        with self._lock:
            if error.offset <= reached(self._counted, error.partition):
                return
            self._counted = raised(self._counted, error.partition, error.offset)
            self.total += 1
            self._last = str(error)
            must_tell, self._is_telling = not self._is_telling, True
        if must_tell:
            self._call_in_reactor(self._begin)

    def _begin(self) -> None:
        self._later(SOON_S, self._tell)

    def _tell(self) -> None:
        """Say what has come since the last time; silence until the next one when nothing has."""
        with self._lock:
            new, total, last = self.total - self._told, self.total, self._last
            self._told = total
            self._is_telling = new > 0
        if new:
            log.warning("damaged session events were left out", count=new, total=total, last=last)
            self._later(PERIOD_S, self._tell)
