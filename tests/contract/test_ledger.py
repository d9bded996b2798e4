"""The count ledger's contract, over the drivers that need no server."""

from __future__ import annotations

import pytest

from iothub.testing.ledger_contract import CASES, LIMITS, Case
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.quota.port import CountLedger
from iothub_services.quota.resolve import resolve_texts


class Silent:
    def refused(self, tenant_id: int, quota: Quota) -> None: ...

    def would_refuse(self, tenant_id: int, quota: Quota) -> None: ...

    def unbalanced(self, tenant_id: int, quota: Quota) -> None: ...


@pytest.fixture
def ledger() -> CountLedger:
    return LocalLedger(1, resolve_texts(LIMITS), Silent())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_ledger_contract(case: Case, ledger: CountLedger) -> None:
    """Every driver does what `iothub.testing.ledger_contract` says."""
    case(ledger)
