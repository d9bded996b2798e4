"""The store process as a process: it starts, is killed under load, stops, and says what it found."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, UnavailableError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.workers.store_process import StoreProcess
from iothub.records.events import Subject, session_discarded
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import TENANT, made, one
from iothub_services.events.port import NOWHERE
from iothub_services.queues.port import Append, Delivery, QueueLimits
from iothub_services.store_process.commits import RemoteCommits
from iothub_services.store_process.events import RemoteEvents
from iothub_services.store_process.ledger import RemoteLedger
from iothub_services.store_process.queues import RemoteQueues
from tests.support.hubs.store_worker import BATCH, SHARED, body_of
from tests.support.waiting import PATIENCE_S

_STORE = """
import sys
from pathlib import Path
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub.workers.store_process import run

class Report:
    def ready(self):
        print("ready", flush=True)

    def beat(self):
        pass

sys.exit(run(Config(), DataDir(Path(sys.argv[1])), Report()))
"""
COUNT = 400
KILLS = 6


def started(directory: Path) -> subprocess.Popen[str]:
    """Start a store process and wait until it serves."""
    process = subprocess.Popen(
        [sys.executable, "-c", _STORE, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    return process.returncode


@contextmanager
def serving(directory: Path) -> Iterator[StoreProcess]:
    """Serve in this process."""
    process = StoreProcess(Config(), DataDir(directory), ManualClock())
    process.serve()
    try:
        yield process
    finally:
        assert process.close()


def test_killed_store_process_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Two workers append to queues of their own, to one queue together and to the log, while it is killed again and again."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    socket = DataDir(tmp_path).store_socket
    store = started(tmp_path)
    queues = RemoteQueues(socket)
    for queue_id in (1, 2, SHARED):
        queues.create(TENANT, queue_id, QueueLimits())
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.hubs.store_worker", str(socket), str(queue_id), str(COUNT)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for queue_id in (1, 2)
    ]
    assert workers[0].stdout is not None
    first = workers[0].stdout.readline()
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.0, 0.1))
        assert ended(store, signal.SIGKILL) == -signal.SIGKILL
        store = started(tmp_path)
    outputs = [worker.communicate(timeout=600)[0] for worker in workers]
    outputs[0] = first + outputs[0]
    assert [worker.returncode for worker in workers] == [0, 0], seed

    shared_claim = queues.claim(SHARED, b"judge")
    shared = queues.read(SHARED, shared_claim.epoch, 0, 10_000, 1 << 30).records
    for queue_id, output in zip((1, 2), outputs, strict=True):
        said = [json.loads(line) for line in output.splitlines()]
        claim = queues.claim(queue_id, b"judge")
        records = queues.read(queue_id, claim.epoch, 0, 10_000, 1 << 30).records
        assert [record.body for record in records] == [body_of(queue_id, number) for number in range(COUNT)], seed
        assert [record.position for record in records] == [own for each in said for own, _ in each["positions"]], seed
        mine = [record for record in shared if record.body.startswith(b"%d/" % queue_id)]
        assert [record.body for record in mine] == [record.body for record in records], seed
        assert [record.position for record in mine] == [both for each in said for _, both in each["positions"]], seed
    log = RemoteEvents(socket)
    events = log.read(NOWHERE, 10_000)
    assert len({(each.event.client_id, each.event.at_ms) for each in events}) == len(events) == 2 * COUNT, seed  # type: ignore[union-attr]
    assert sorted(each.offset for each in events) == sorted(
        offset for output in outputs for line in output.splitlines() for offset in json.loads(line)["offsets"]
    ), seed
    queues.close()
    log.close()
    assert COUNT % BATCH == 0
    assert ended(store, signal.SIGTERM) == 0
    assert not socket.exists()


def test_socket_is_for_the_same_user_only(tmp_path: Path) -> None:
    """Whoever may connect may do anything."""
    with serving(tmp_path):
        assert stat.S_IMODE(DataDir(tmp_path).store_socket.stat().st_mode) == 0o600


def test_socket_of_a_killed_process_is_taken_over_and_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    """An address has 107 bytes."""
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    DataDir(directory).store_socket.parent.mkdir()
    DataDir(directory).store_socket.touch()
    with serving(directory):
        queues = RemoteQueues(DataDir(directory).store_socket)
        assert queues.tails([1]) == {}
        queues.close()


def test_socket_that_cannot_be_made_is_said_by_its_path(tmp_path: Path) -> None:
    """And the start ends."""
    process = StoreProcess(Config(), DataDir(tmp_path), ManualClock())
    DataDir(tmp_path).store_socket.mkdir(parents=True)
    with pytest.raises(UnavailableError, match=r"store\.sock: cannot listen"):
        process.serve()
    assert process.close()


def test_files_of_a_hub_without_workers_are_used_and_stay_usable(tmp_path: Path) -> None:
    """What is added for workers is a table that nobody else looks at; the files' versions stay."""
    with serving(tmp_path):
        queues = RemoteQueues(DataDir(tmp_path).store_socket)
        made(queues, 1)
        queues.append([one(1, 1)])
        queues.close()
    with sqlite3.connect(tmp_path / "queues.db") as connection:
        assert connection.execute("SELECT count(*) FROM request").fetchone() == (1,)
        before = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("DROP TABLE request")
    connection.close()
    with serving(tmp_path):
        queues = RemoteQueues(DataDir(tmp_path).store_socket)
        assert queues.stats(1).messages == 1
        queues.close()
    with sqlite3.connect(tmp_path / "queues.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == before
    connection.close()


def test_backup_holds_the_commits_of_the_stores(tmp_path: Path) -> None:
    """What must be stored waits; a hold that has ended says so."""
    with serving(tmp_path):
        commits = RemoteCommits(DataDir(tmp_path).store_socket)
        hold = commits.hold(1.0, 30.0)
        assert commits.hold(1.0, 1.0) == ""
        assert commits.release(hold)
        assert not commits.release(hold)
        commits.close()


def test_ledger_answers_scripts_as_redis_does(tmp_path: Path) -> None:
    """An unknown one is refused for good."""
    with serving(tmp_path):
        ledger = RemoteLedger(DataDir(tmp_path).store_socket)
        with pytest.raises(BackendError, match="another version") as raised:
            ledger.run("0" * 40, ["a"], [b"b", 1, 0.5, "c"])
        assert not raised.value.retryable
        ledger.close()


def test_lost_queue_is_rebuilt_before_workers_come_and_each_hears_of_it(tmp_path: Path) -> None:
    """The file is damaged in a page: it is set aside, its rows are copied, and the worker's alarm says so."""
    with serving(tmp_path):
        queues = RemoteQueues(DataDir(tmp_path).store_socket)
        made(queues, 1)
        queues.append([Append(b"", b"x" * 3_000, 0, (Delivery(1, 1),)) for _ in range(50)])
        queues.close()
    file = tmp_path / "queues.db"
    content = bytearray(file.read_bytes())
    content[8_192 : 8_192 + 4_096] = b"\xaa" * 4_096
    file.write_bytes(content)
    heard: list[tuple[str, str]] = []

    with serving(tmp_path):
        queues = RemoteQueues(DataDir(tmp_path).store_socket, heard.extend)
        assert not queues.needs_rebuild
        queues.close()

    assert "queues_corrupt" in [word for word, _ in heard]


def test_log_that_lost_its_end_goes_on_above_what_the_states_have(tmp_path: Path) -> None:
    """It is put right before a worker reads it, and said."""
    heard: list[tuple[str, str]] = []
    with serving(tmp_path):
        log = RemoteEvents(DataDir(tmp_path).store_socket)
        log.append([session_discarded(Subject(TENANT, "client", 3, number), reason="x") for number in range(5)])
        log.close()
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("INSERT INTO applied VALUES (0, 9)")
    connection.close()

    with serving(tmp_path):
        log = RemoteEvents(DataDir(tmp_path).store_socket, heard.extend)
        assert log.append([session_discarded(Subject(TENANT, "client", 3, 9), reason="x")])[0].offset == 10
        log.close()

    assert [word for word, _ in heard] == ["event_log_lost"]
