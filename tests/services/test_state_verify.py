"""`iothub state verify` on the real servers: the log on Kafka, the states in a file or on HBase, with a checkpoint and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.cli import stores
from iothub.cli.main import run
from iothub.config.datadir import DataDir
from iothub.config.loader import load
from iothub.config.sections import Kafka
from iothub.records import events, keys
from iothub.records.events import Event, Subject
from iothub.records.layout import encode_state_cell
from iothub.testing.checkpoint_contract import pointer_to
from iothub_services.hbase import calls
from iothub_services.hbase.tables import Tables
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints
from iothub_services.state.service import StateService
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller
from tests.support.hbase.own_tables import own_tables
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.left_behind import left_behind

NAMES = [f"client-{number}" for number in range(50)]


@pytest.fixture
def tables(services: Services) -> Iterator[Tables]:
    """States and checkpoints, as hubs have them."""
    with own_tables(services, 8, "state", "checkpoints") as made:
        yield made


def created(client_id: str, epoch: int = 1) -> Event:
    subject = Subject(7, client_id, epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


def hub_on(directory: Path, services: Services, kafka: Kafka, driver: str, namespace: str) -> DataDir:
    """A data directory whose log is on Kafka; fifty sessions, of which the states have forty."""
    data_dir = DataDir(fresh_hub(directory).data_dir)
    with data_dir.config_file.open("a") as file:
        file.write(
            f'\n[events]\ndriver = "kafka"\n[kafka]\nbrokers = ["{kafka.brokers[0]}"]\ntopic_prefix = "{kafka.topic_prefix}"\n'
            f"partitions = {kafka.partitions}\nreplication = {kafka.replication}\n"
            f'[state]\ndriver = "{driver}"\n'
            f'[hbase]\nthrift = ["{HOST}:{services.ports.thrift}"]\nnamespace = "{namespace}"\n'
        )
    settings = load(file=data_dir.config_file, environment={}, flags=()).config
    with left_behind(data_dir, settings) as written:
        written.log.append([created(name) for name in NAMES[:40]])
        StateService(written.log, written.states, lambda name, text: pytest.fail(f"{name} {text}")).load()
        written.log.append([created(name) for name in NAMES[40:]])
    return data_dir


def verify(data_dir: DataDir, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    code = run(["--data-dir", str(data_dir.path), "state", "verify", "--json", *words])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return code, found


def test_states_on_hbase_are_what_the_log_on_kafka_says(
    services: Services, kafka: Kafka, tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the beginning, and from a checkpoint; a row that somebody changed is named."""
    data_dir = hub_on(tmp_path, services, kafka, "hbase", tables.namespace)

    code, found = verify(data_dir, capsys)
    assert (code, found["from"], found["events"], found["sessions"]) == (0, "the beginning of the log", 50, 50)

    with caller(services) as tools:
        with stores.reading_states(
            data_dir, load(file=data_dir.config_file, environment={}, flags=()).config
        ) as states:
            assert states is not None
            rows, offsets = list(states.load()), states.applied_offsets()
        checkpoints = HBaseCheckpoints(tools, tables)
        checkpoints.write(3, rows)
        assert checkpoints.move(None, pointer_to(3, rows, offsets))
        code, found = verify(data_dir, capsys)
        assert (code, found["from"], found["events"], found["sessions"]) == (0, "checkpoint 3", 10, 50)

        row = rows[7]
        spoilt = encode_state_cell(row.offset, row.record.replace(b'"epoch":1', b'"epoch":6'))
        key = keys.state_key(row.tenant_id, row.client_id)
        tools.call(calls.mutate_row(tables.state, key, {b"s:r": spoilt}, (), max(offsets)))

    for words in ((), ("--full",)):
        code, found = verify(data_dir, capsys, *words)
        assert (code, found["different"]) == (1, 1)
        assert found["differences"] == [f"7/{row.client_id}: stored state differs from the log (epoch)"]


def test_states_in_a_file_are_what_the_log_on_kafka_says(
    services: Services, kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver of each is chosen by itself."""
    data_dir = hub_on(tmp_path, services, kafka, "sqlite", "unused")

    code, found = verify(data_dir, capsys)

    assert (code, found["events"], found["sessions"], found["different"]) == (0, 50, 50, 0)
