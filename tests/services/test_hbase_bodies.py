"""Bodies that nothing refers to leave the real HBase: by the command, beside hubs that write."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.cli.main import run
from iothub.records import keys
from iothub.records.queued import record_head, reference
from iothub.testing.queue_contract import MANY, TENANT, made, one
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Mutation
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase.bodies import LARGE_BYTES
from iothub_services.queues.hbase.body_sweep import sweep, sweep_leased
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.hbase.sweep_lease import SweepLease
from iothub_services.queues.port import Move, MoveKind, QueueStore
from ops.services.services import Services
from tests.support.hbase.own_tables import caller_of, flush_regions, own_tables

REGIONS = 4
LARGE = b"l" * (LARGE_BYTES + 1)
DAY_MS = 86_400_000
MESSAGES = 100
FAR_AHEAD_MS = 1 << 50


@pytest.fixture(scope="module")
def _tables(_servers: Services) -> Iterator[Tables]:
    _servers.up()
    with own_tables(_servers, REGIONS, "queues", "queue_index", "bodies") as tables:
        yield tables


@pytest.fixture
def tables(_tables: Tables, services: Services) -> Iterator[Tables]:
    yield _tables
    with caller_of(services) as caller:
        with closing(HBaseQueues(caller, _tables)) as store:
            store.drop_tenant(TENANT)
        sweep(caller, _tables, FAR_AHEAD_MS, lambda _: None)


def test_command_deletes_what_is_old_and_loose(
    tables: Tables, services: Services, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rows that HBase got two days ago, one of which a record refers to, and a young one. A dry run says so, and deletes nothing."""
    config = tmp_path / "iothub.toml"
    config.write_text(f'[hbase]\nthrift = ["127.0.0.1:{services.ports.thrift}"]\nnamespace = "{tables.namespace}"\n')

    before: Counter[str] = Counter()

    def reported(*words: str) -> dict[str, int]:
        assert run(["--config", str(config), "hbase", "sweep", *words, "-o", "json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record.pop("name") == tables.namespace
        return {word: count - before[word] for word, count in record.items()}

    before.update(reported("--dry-run"))  # what other tests have left
    with caller_of(services) as caller, closing(HBaseQueues(caller, tables)) as store:
        epoch = made(store, 1).epoch
        store.append([one(1, 1, body=LARGE)])
        now_ms = SweepLease(caller, tables.queue_index).now_ms()
        ids = [bytes(15) + bytes((number,)) for number in (1, 2)]
        old = [Mutation(keys.body_key(body_id, TENANT), {b"b:0": b"\1x"}) for body_id in ids]
        caller.call(calls.mutate_rows(tables.bodies, old, now_ms - 2 * DAY_MS))
        record = record_head(1, 0, (), 0, b"", 1, is_apart=True) + reference(ids[0])
        caller.call(calls.mutate_row(tables.queues, keys.record_row(keys.queue_key(9, TENANT), 1), {b"d:b": record}))

        figures = {"bodies": 3, "referenced": 1, "young": 1, "unreferenced": 1, "references": 2}
        assert reported("--dry-run") == {**figures, "deleted": 0}
        assert reported() == {**figures, "deleted": 1}
        assert reported()["bodies"] == 2

        assert caller.call(calls.get_row(tables.bodies, keys.body_key(ids[0], TENANT))) is not None
        assert [record.body for record in store.read(1, epoch, 0, 2, MANY).records] == [LARGE]


def test_hub_that_writes_meanwhile_loses_no_body(tables: Tables, services: Services) -> None:
    """A writer puts bodies, refers to them and acknowledges half, while sweep after sweep spares only what is younger than a second."""
    writing, total = _Writing(tables, services), 0
    with caller_of(services) as caller, closing(HBaseQueues(caller, tables)) as store:
        made(store, 5)
        thread = threading.Thread(target=writing.run)
        thread.start()
        while thread.is_alive():
            swept = sweep_leased(caller, tables, 1.0, lambda _: None, time.monotonic)
            assert swept is not None
            total += swept.deleted
        flush_regions(services, tables.queues)  # consumed records refer until then
        swept = sweep(caller, tables, FAR_AHEAD_MS, lambda _: None)

        left = list(_bodies(store))
    assert writing.failures == []
    assert left == [LARGE] * (MESSAGES // 2)
    assert total + swept.deleted >= MESSAGES // 2  # and what tests before have left


def _bodies(store: QueueStore) -> Iterator[bytes]:
    """Read what the queue holds."""
    claim = store.claim(5, b"reader")
    after = claim.head
    while records := store.read(5, claim.epoch, after, MANY, MANY).records:
        yield from (record.body for record in records)
        after = records[-1].position


class _Writing:
    """A hub in a thread: the first half of its messages is acknowledged."""

    def __init__(self, tables: Tables, services: Services) -> None:
        self._tables = tables
        self._services = services
        self.failures: list[Exception] = []

    def run(self) -> None:
        try:
            with caller_of(self._services) as caller, closing(HBaseQueues(caller, self._tables)) as store:
                epoch = store.claim(5, b"writer").epoch
                for number in range(1, MESSAGES + 1):
                    store.append([one(5, number, body=LARGE)])
                    if number <= MESSAGES // 2:
                        store.apply([Move(MoveKind.ACK, 5, epoch, number)])
        except Exception as error:  # told by the test
            self.failures.append(error)
