"""Retained messages on the real HBase: the contract of the port, and versions of hubs that share a table. Killed: `test_stores_killed.py`."""

from __future__ import annotations

import threading

import pytest

from iothub.base.errors import BackendError
from iothub.testing.retained_contract import CASES, Case
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import Tables
from iothub_services.retained.hbase.store import HBaseRetained
from iothub_services.retained.port import RetainedWrite
from ops.services.services import Services
from tests.support.hbase.retained_writers import check, written_by_all

STORE_TABLES = "retained", len(CASES) + 2  # of the contract, and of the tests behind it


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_retained_contract(case: Case, tables: Tables, tools: DirectCaller) -> None:
    """HBase does what every driver does, over the bounds of regions."""
    case(HBaseRetained(tools, tables))


def test_hubs_that_share_the_table_never_get_the_same_version(services: Services, tables: Tables) -> None:
    is_over = threading.Event()
    is_over.set()
    check(services, tables, written_by_all(services, tables, is_over))


def test_large_messages_are_fetched_and_one_that_is_too_large_is_refused(tables: Tables, tools: DirectCaller) -> None:
    """HBase takes cells of 10 MiB, and a frame holds one of them at most."""
    store = HBaseRetained(tools, tables)
    store.put([RetainedWrite(1, b"t/%d" % number, b"x" * (3 << 20)) for number in range(6)])

    assert [len(body.body) for body in store.fetch(1, [b"t/%d" % number for number in range(6)])] == [3 << 20] * 6
    with pytest.raises(BackendError) as caught:
        store.put([RetainedWrite(1, b"t/9", b"x" * (11 << 20))])
    assert not caught.value.retryable
    assert store.usage(1).messages == 6
