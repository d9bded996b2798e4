"""Each test of hubs that share a ledger runs with the scripts in a fake Redis, and with their twins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.in_process.ledgers import LEDGERS, Ledger
from tests.support.in_process.shared_quota import World


@pytest.fixture(params=list(LEDGERS.values()), ids=list(LEDGERS))
def make_ledger(request: pytest.FixtureRequest) -> Callable[[], Ledger]:
    made: Callable[[], Ledger] = request.param
    return made


@pytest.fixture
def redis(make_ledger: Callable[[], Ledger]) -> Ledger:
    return make_ledger()


@pytest.fixture
def world(make_ledger: Callable[[], Ledger]) -> World:
    return World(make_ledger)
