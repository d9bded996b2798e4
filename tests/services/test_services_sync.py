"""What a server has acknowledged is synced: a power cut loses none of it, although there is no second copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ops.services.services import Services
from ops.services.thrift import Gateway, Sent
from tests.support.hubs.strace import SYNCING, Call, Tracer
from tests.support.servers.kafka import produce

WRITES = 5


@contextmanager
def _syncs(services: Services, name: str, trace: Path) -> Iterator[list[Call]]:
    """Give a list that holds, behind the block, every sync of the server within it."""
    pid = next(report.pid for report in services.reports() if report.name == name)
    assert pid is not None
    tracer = Tracer(pid, trace)
    found: list[Call] = []
    try:
        yield found
    finally:
        found += [call for call in tracer.stop() if call.name in SYNCING]


def _arguments(verb: str, table: bytes, row: bytes) -> tuple[Sent | None, ...]:
    put: Sent = {2: b"f:a", 3: b"value"}
    if verb == "append":
        return ({1: table, 2: row, 3: [b"f:a"], 4: [b"value"]},)
    if verb == "checkAndPut":
        return table, row, b"f:a", None, None, put  # number 4 was never given out; no value: if it is absent
    return table, row, [put]


@pytest.mark.parametrize("verb", ["mutateRow", "append", "checkAndPut"])
def test_hbase_syncs_its_log_before_it_answers(services: Services, table: bytes, tmp_path: Path, verb: str) -> None:
    """Every way of writing that the drivers use; the gateway asks for a mere flush with two of the three."""
    with _syncs(services, "hbase", tmp_path / "trace") as syncs, Gateway(services.ports.thrift) as gateway:
        for number in range(WRITES):
            gateway.call(verb, *_arguments(verb, table, b"row %d" % number))

    assert sum("/WALs/" in call.file and call.result == 0 for call in syncs) >= WRITES


def test_kafka_syncs_a_record_before_it_acknowledges(services: Services, topic: str, tmp_path: Path) -> None:
    """One at a time, each in a batch of its own."""
    with _syncs(services, "kafka", tmp_path / "trace") as syncs:
        for _ in range(WRITES):
            produce(services, topic, b"hello")

    assert sum(f"/{topic}-0/" in call.file and call.file.endswith(".log") for call in syncs) >= WRITES
