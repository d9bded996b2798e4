"""The count ledger's contract, over the drivers that need no server; the shared one runs its scripts on a fake Redis, and their twins."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import pytest
from twisted.internet.defer import Deferred

from iothub.testing.ledger_contract import CASES, LIMITS, Case
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.quota.port import CountLedger
from iothub_services.quota.resolve import resolve_texts
from iothub_services.quota.shared.ledger import SharedLedger
from tests.support.in_process.ledgers import LEDGERS, Ledger
from tests.support.in_process.shared_quota import HubHalf, World, turns


class Silent:
    def refused(self, tenant_id: int, quota: Quota) -> None: ...

    def would_refuse(self, tenant_id: int, quota: Quota) -> None: ...

    def unbalanced(self, tenant_id: int, quota: Quota) -> None: ...


class Asking(SharedLedger):
    """Waits for room before it reserves, as whoever may wait does: nobody else is there, so the answer comes at once."""

    def __init__(self, hub: HubHalf) -> None:
        self._run_soon = hub.run_soon
        super().__init__(1, resolve_texts(LIMITS), Silent(), hub.shared.ledger_client)

    def reserve(self, quota: Quota, count: int = 1, *, subject: Hashable = None) -> bool:
        answers: list[bool] = []
        Deferred.fromCoroutine(self.room((quota, count))).addCallback(answers.append)
        self._run_soon()
        assert answers, "nobody gave an answer"
        return super().reserve(quota, count, subject=subject)


def local() -> CountLedger:
    return LocalLedger(1, resolve_texts(LIMITS), Silent())


def shared(make: Callable[[], Ledger]) -> CountLedger:
    """A hub that others may join, as soon as everybody has declared what he has."""
    world = World(make)
    hub = HubHalf(world, "1-a")
    turns(world, hub, seconds=4.0)
    return Asking(hub)


DRIVERS = {"local": local, **{f"shared-{name}": partial(shared, make) for name, make in LEDGERS.items()}}


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS.keys())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_ledger_contract(case: Case, driver: Callable[[], CountLedger]) -> None:
    """Every driver does what `iothub.testing.ledger_contract` says."""
    case(driver())
