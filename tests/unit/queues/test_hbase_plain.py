"""The queue driver `hbase-plain` without a server."""

from __future__ import annotations

import pytest

from iothub.testing import queue_contract, queue_expiry_contract
from iothub.testing.queue_contract import Case
from tests.support.hbase_plain import PlainHBase

CASES = queue_contract.CASES + queue_expiry_contract.CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract(case: Case) -> None:
    """The driver does what every driver does."""
    store, _ = PlainHBase().store()

    case(store)
