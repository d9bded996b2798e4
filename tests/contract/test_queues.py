"""The queue port's contract, over the drivers that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from iothub.testing import queue_contract, queue_expiry_contract
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import Case
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import QueueLimits, QueueStore
from iothub_services.queues.several import SeveralQueues
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database
from tests.support.hbase_plain import PlainHBase
from tests.support.hbase_queues import HBase
from tests.support.redis_queues import RedisHouse


class Alternating(SeveralQueues):
    """Neighbouring queues are with different drivers."""

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        self.create_with(("sqlite", "memory")[queue_id % 2], tenant_id, queue_id, limits, first_epoch)


@pytest.fixture(params=["memory", "sqlite", "hbase", "hbase-plain", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QueueStore]:
    queues: QueueStore = MemoryQueues()
    if request.param == "sqlite":
        queues = SqliteQueues(open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail))
    elif request.param == "hbase":
        queues = HBase().store()[0]
    elif request.param == "hbase-plain":
        queues = PlainHBase().store()[0]
    elif request.param == "redis":
        queues = RedisHouse().store()
    yield queues
    queues.close()


CASES = queue_contract.CASES + queue_expiry_contract.CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract(case: Case, store: QueueStore) -> None:
    """Every driver does what `iothub.testing.queue_contract` and `queue_expiry_contract` say."""
    case(store)


# Each driver holds its own queues to a tenant's bounds and looks for what has expired by itself; a publisher's queue that makes its memory
# durable at once is asked last.
APPROXIMATE = {
    "limits_of_a_tenant_bound_the_sum_of_its_queues",
    "limit_behind_each_refusal_and_drop_is_named",
    "expire_goes_on_behind_its_mark",
}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.__name__ not in APPROXIMATE], ids=lambda case: case.__name__
)
def test_queue_contract_over_several_drivers(case: Case, tmp_path: Path) -> None:
    """Queues of two drivers, and messages for both, look like those of one."""
    files = SqliteQueues(open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail))
    queues = Alternating({"memory": MemoryQueues(), "sqlite": cast("QueueStore", files)}, "memory")
    case(queues)
    queues.close()
