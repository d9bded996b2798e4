"""How fast `compact_events` is beside a plain fold in one Python process, and how long a hub's start takes with and without a checkpoint.

Run by hand, alone: `.venv/bin/python tests/bench/bench_spark.py --events 1000000 4000000`; `--source kafka` reads from Kafka of `make services`.
Both sides read the same log, decode, fold, and write a checkpoint file. Starting Spark is shown by itself, and so is the first run, which loads
the programs of all its processes. Seconds of processor time stand beside those of the clock, for machines that do something else, too. Knows no hub.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil
from pyspark.sql import SparkSession

from iothub.records.checkpoint import Pointer, add_checksums, row_checksum
from iothub.records.events import decode_event
from iothub.records.state import SessionState, encode_state, fold
from iothub.testing.clock import ManualClock
from iothub_services.events.sqlite import SCHEMA as EVENTS
from iothub_services.events.sqlite import SqliteEvents
from iothub_services.sqlite.database import open_database
from iothub_services.state.checkpoints_sqlite import SCHEMA as CHECKPOINTS
from iothub_services.state.checkpoints_sqlite import SqliteCheckpoints as HubCheckpoints
from iothub_services.state.memory import MemoryStates
from iothub_services.state.service import StateService
from iothub_spark.jobs import compact_events
from iothub_spark.session import start_session
from iothub_spark.spec import KafkaLog, SparkSettings, Spec, SqliteFile
from iothub_spark.stores.log import range_after
from iothub_spark.stores.opened import opened_log
from iothub_spark.stores.rows import StateRow
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from tests.support.event_log import EventMill, append, make_log
from tests.support.spark import Quiet

SESSIONS_OF = 10  # events per session
TENANTS = 50
TAIL = 10_000
WARMING = 20_000  # events of the first run


def plain_fold(spec: Spec, checkpoints: Path) -> int:
    """Fold the whole log in this process, one event after another, and write a checkpoint; returns the sessions."""
    states: dict[tuple[int, str], SessionState] = {}
    with opened_log(spec.events) as log:
        wanted = range_after(log, None)
        for stretch in wanted.stretches(1):
            for page in log.read(stretch):
                for offset, _, value in page:
                    event = decode_event(value)
                    key = event.tenant_id, event.client_id
                    state = fold(states.get(key), event, offset)
                    if state is not None:
                        states[key] = state
    rows = [StateRow(*key, state.offset, encode_state(state)) for key, state in sorted(states.items())]
    with closing(SqliteCheckpoints(checkpoints)) as store:
        store.write(1, rows)
        checksum = add_checksums(row_checksum(*row) for row in rows)
        store.move(None, Pointer(1, wanted.upto, len(rows), checksum, 1))
    return len(rows)


def compaction(spark: SparkSession, spec: Spec) -> float:
    began = time.perf_counter()
    compact_events.run(spark, spec, Quiet())
    return time.perf_counter() - began


def starts(folder: Path, mill: EventMill) -> tuple[float, float]:
    """Return the seconds of a start without the checkpoint and with it, a tail behind it."""
    append(folder / "events.db", mill.events(TAIL))

    def start(is_with: bool) -> float:
        clock = ManualClock()
        with (
            closing(SqliteEvents(open_database(folder / "events.db", EVENTS, clock, print))) as log,
            closing(HubCheckpoints(open_database(folder / "checkpoints.db", CHECKPOINTS, clock, print))) as store,
        ):
            service = StateService(log, MemoryStates(), lambda name, text: None, store if is_with else None)
            began = time.perf_counter()
            service.load()
            return time.perf_counter() - began

    return start(False), start(True)


def made_kafka(log: Path, count: int) -> KafkaLog:
    """Copy a log into topics of its own on Kafka of `make services`."""
    from iothub_services.events.kafka import KafkaEvents
    from ops.services.house import Services
    from tests.support.kafka import own_settings

    settings = own_settings(Services(say=lambda text: None), partitions=4)
    with (
        closing(KafkaEvents(settings)) as kafka,
        closing(SqliteEvents(open_database(log, EVENTS, ManualClock(), print))) as source,
    ):
        for after in range(0, count, 2_000):
            kafka.append([logged.event for logged in source.read((after,), 2_000)])
    return KafkaLog(settings.brokers, settings.topic_prefix)


def measure(spark: SparkSession, count: int, source: str, settings: SparkSettings) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, mill = Path(name), EventMill(max(1, count // SESSIONS_OF), TENANTS)
        make_log(folder / "events.db")
        append(folder / "events.db", mill.events(count))
        files = [SqliteFile(folder / each) for each in ("checkpoints.db", "state.db")]
        place = made_kafka(folder / "events.db", count) if source == "kafka" else SqliteFile(folder / "events.db")
        spec = Spec("compact_events", 1, place, *files, spark=settings)
        before_s, began = processor_s(), time.perf_counter()
        sessions = plain_fold(spec, folder / "plain.db")
        plain_s = time.perf_counter() - began
        between_s = processor_s()
        spark_s = compaction(spark, replace(spec, options={"full": True}))
        busy_s = processor_s() - between_s
        cores = spark.sparkContext.defaultParallelism
        print(
            f"| {source} | {count:,} | {sessions:,} | {plain_s:.1f} ({between_s - before_s:.1f}) | {spark_s:.1f} ({busy_s:.1f}) "
            f"| {plain_s / spark_s:.2f} | {count / spark_s / cores:,.0f} |",
            flush=True,
        )
        if source == "sqlite":
            without_s, with_s = starts(folder, mill)
            ratio = without_s / with_s
            print(
                f"  start of a hub: {without_s:.2f} s without, {with_s:.2f} s with checkpoint and {TAIL:,} events ({ratio:.1f}x)"
            )


def processor_s() -> float:
    """Return the processor time of this process and of all that it has started."""
    total = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(child.cpu_times()[:4])
    return total


def peaks_mib() -> list[int]:
    """Return the highest resident size that each living child of this process ever had."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii").splitlines()
            found += [int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")]
    return found or [0]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--source", choices=("sqlite", "kafka"), default="sqlite")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="1g")
    given = parser.parse_args(arguments)
    settings = SparkSettings(master=given.master, driver_memory=given.memory, shuffle_partitions=8)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, SQLite {sqlite3.sqlite_version}")
    began = time.perf_counter()
    spark = start_session(settings, "bench")
    spark.range(1).count()
    print(f"Spark is up after {time.perf_counter() - began:.1f} s\n")
    print(
        "| source | events | sessions | plain fold, s (processor) | Spark, s (processor) | times the plain fold | events/s per core |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    measure(spark, WARMING, given.source, settings)
    for count in given.events:
        measure(spark, count, given.source, settings)
    peaks = peaks_mib()
    spark.stop()
    print(f"\npeak memory of Spark's {len(peaks)} processes: {sum(peaks):,} MiB, the largest {max(peaks):,}")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
