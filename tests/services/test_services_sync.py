"""What a server has acknowledged is synced: a power cut loses none of it, although there is no second copy."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ops.services.services import Services
from ops.services.thrift import Gateway, Sent
from tests.support.hbase import queue_bytes
from tests.support.hbase.coprocessor_writers import MANY_QUEUES
from tests.support.hbase.queue_bytes import record
from tests.support.hbase.queue_table import queue_table
from tests.support.servers.kafka import create_topic, produce
from tests.support.servers.traced import TracedServices, traced_services

WRITES = 5


@pytest.fixture(scope="module")
def traced(_set: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedServices]:
    """Servers of this module's own, with the libraries of the others."""
    _set.fetch()
    with traced_services(tmp_path_factory.mktemp("traced") / "services", _set.places.libraries) as made:
        yield made


def _log_syncs(traced: TracedServices) -> int:
    return sum("/WALs/" in call.file for call in traced.syncs("hbase"))


def _arguments(verb: str, table: bytes, row: bytes) -> tuple[Sent | None, ...]:
    put: Sent = {2: b"f:a", 3: b"value"}
    if verb == "append":
        return ({1: table, 2: row, 3: [b"f:a"], 4: [b"value"]},)
    if verb == "checkAndPut":
        return table, row, b"f:a", None, None, put  # number 4 was never given out; no value: if it is absent
    return table, row, [put]


@pytest.mark.parametrize("verb", ["mutateRow", "append", "checkAndPut"])
def test_hbase_syncs_its_log_before_it_answers(traced: TracedServices, verb: str) -> None:
    """Every way of writing that the drivers use; the gateway asks for a mere flush with two of the three."""
    table = f"smoke_{uuid.uuid4().hex}".encode()
    with Gateway(traced.ports.thrift) as gateway:
        gateway.call("createTable", table, [{1: b"f:", 2: 1}])
        for number in range(WRITES):
            before = _log_syncs(traced)
            gateway.call(verb, *_arguments(verb, table, b"row %d" % number))

            assert _log_syncs(traced) > before


def test_call_of_the_coprocessor_is_synced_before_it_is_answered(traced: TracedServices) -> None:
    """One call for sixteen queues is one sync of the write-ahead log, and not less."""
    with queue_table(traced, regions=4) as table, table.caller() as caller:
        table.do(caller, MANY_QUEUES[0], *[queue_bytes.create(each) for each in MANY_QUEUES])
        first = before = _log_syncs(traced)
        for sequence in range(1, 1 + WRITES):
            steps = [queue_bytes.append(each, 9, sequence, [record(b"a")]) for each in MANY_QUEUES]
            table.do(caller, MANY_QUEUES[0], *steps)

            assert _log_syncs(traced) > before
            before = _log_syncs(traced)

    assert before - first < WRITES * len(MANY_QUEUES)


def test_kafka_syncs_a_record_before_it_acknowledges(traced: TracedServices) -> None:
    """One at a time, each in a batch of its own."""
    topic = f"smoke.{uuid.uuid4().hex}"
    create_topic(traced, topic)
    for _ in range(WRITES):
        before = _syncs_of(traced, topic)
        produce(traced, topic, b"hello")

        assert _syncs_of(traced, topic) > before


def _syncs_of(traced: TracedServices, topic: str) -> int:
    return sum(f"/{topic}-0/" in call.file and call.file.endswith(".log") for call in traced.syncs("kafka"))
