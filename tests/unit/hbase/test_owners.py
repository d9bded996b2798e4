"""Whose the stores of a namespace are: the first installation's, whatever becomes of calls."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError, NotFoundError
from iothub.records.owner import Owner
from iothub_services.events.port import NOWHERE
from iothub_services.hbase.administration import claim, owner_columns, owners
from iothub_services.hbase.calls import Call
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase.index import QueueIndex
from iothub_services.retained.hbase.store import HBaseRetained
from iothub_services.retained.port import RetainedWrite
from iothub_services.state.hbase.store import HBaseStates
from tests.support.hbase.hbase_calls import FakeCaller, Fault
from tests.support.hbase.timed_gateway import TimedGateway

TABLES = Tables("t")
COLUMNS = owner_columns(TABLES)
OURS, THEIRS = Owner("a" * 32, "one", 1), Owner("b" * 32, "two", 2)


@pytest.fixture
def caller() -> FakeCaller:
    return FakeCaller(TimedGateway(*COLUMNS))


def test_tables_of_nobody_are_taken_once(caller: FakeCaller) -> None:
    """Whoever comes second hears who was first."""
    assert owners(caller, COLUMNS) == dict.fromkeys(COLUMNS)

    assert claim(caller, COLUMNS, OURS) == dict.fromkeys(COLUMNS, OURS)
    assert claim(caller, COLUMNS, THEIRS) == dict.fromkeys(COLUMNS, OURS)
    assert owners(caller, COLUMNS) == dict.fromkeys(COLUMNS, OURS)


def test_table_that_is_used_later_is_taken_later(caller: FakeCaller) -> None:
    """Each store has a word of its own: one may be of somebody else."""
    first = {TABLES.retained: COLUMNS[TABLES.retained]}
    claim(caller, first, THEIRS)

    assert claim(caller, COLUMNS, OURS) == {TABLES.state: OURS, TABLES.queue_index: OURS, TABLES.retained: THEIRS}


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED, Fault.UNSENT])
def test_claim_whose_answer_is_lost_is_made_again(caller: FakeCaller, fault: Fault) -> None:
    """Done or not, the second one finds it or does it."""
    faults = [fault]

    def once(call: Call[object]) -> Fault:
        return faults.pop() if call.verb.name == "checkAndPut" and faults else Fault.NONE

    caller.fault = once
    with pytest.raises(BackendError) as caught:
        claim(caller, COLUMNS, OURS)

    assert caught.value.retryable
    assert claim(caller, COLUMNS, OURS) == dict.fromkeys(COLUMNS, OURS)


def test_stores_do_not_see_the_word(caller: FakeCaller) -> None:
    """It is in a row that no scan of theirs reaches, or in a column that none asks for."""
    claim(caller, COLUMNS, OURS)
    states, retained = HBaseStates(caller, TABLES), HBaseRetained(caller, TABLES)
    index = QueueIndex(caller, TABLES.queue_index, TABLES.queues)

    assert states.applied_offsets() == NOWHERE
    assert states.apply((7,), [])
    assert (states.applied_offsets(), list(states.load())) == ((7,), [])
    assert list(index.listed()) == []
    retained.probe()
    retained.put([RetainedWrite(1, b"a", b"x", 5)])
    assert retained.expire(10, 5) == [(1, b"a")]
    assert retained.drop_tenant(1) == 0
    assert owners(caller, COLUMNS) == dict.fromkeys(COLUMNS, OURS)


def test_missing_table_is_named_with_what_makes_it(caller: FakeCaller) -> None:
    """It is no server that does not answer: waiting mends nothing."""
    missing = {b"t:none": b"s:i"}

    with pytest.raises(NotFoundError, match=r"^missing in HBase: t:none; create them: iothub hbase create-tables"):
        owners(caller, missing)
