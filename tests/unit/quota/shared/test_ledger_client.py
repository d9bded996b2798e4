"""Asking the ledger for units: nothing waits for a ledger that does not answer."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iothub.base.errors import UnavailableError
from iothub.testing.clock import ManualClock
from iothub_services.quota.shared.ledger_client import LedgerClient
from tests.unit.quota.shared.test_grants import grant


def test_request_fails_at_once_while_the_ledger_is_away() -> None:
    """A hub goes on with its share of the count; beyond it the caller hears so, and no question is kept for later."""
    lease: Any = None
    ledger_client = LedgerClient(lease, ManualClock(), lambda _seconds, _call: None, lambda _error: None)
    asked, _ = grant()
    ledger_client.open(asked)
    failures: list[Failure] = []

    ledger_client.fail(UnavailableError("the connection is lost"))
    Deferred.fromCoroutine(ledger_client.room([(asked, 3)])).addErrback(failures.append)

    assert failures[0].check(UnavailableError)
    assert (ledger_client.asked, asked.waiting) == (0, [])
