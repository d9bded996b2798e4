"""How fast `compact_events` is beside a plain fold in one Python process, and how long a hub's start takes with and without a checkpoint.

`ONLY=spark make bench` is this alone; it starts Kafka of `make services` if it does not run, and stops it again. By hand, on less:
`.venv/bin/python tests/bench/bench_spark.py --events 1000000 4000000 --sources sqlite`.
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
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil
from pyspark.sql import SparkSession

from iothub.base.errors import IotHubError
from iothub.config.sections import Kafka
from iothub.records.checkpoint import Pointer, add_checksums, row_checksum
from iothub.records.events import decode_event
from iothub.records.job_spec import KafkaLog, SparkSettings, Spec, SqliteFile
from iothub.records.state import SessionState, encode_state, fold
from iothub.testing.clock import ManualClock
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.sqlite.database import open_database
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.service import StateService
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints as HubCheckpoints
from iothub_spark.jobs import compact_events
from iothub_spark.session import start_session
from iothub_spark.stores.log import range_after
from iothub_spark.stores.opened import opened_log
from iothub_spark.stores.rows import StateRow
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from ops.services.errors import ServicesError
from ops.services.services import Services
from tests.support.jobs.event_log import EventMill, append, make_log
from tests.support.jobs.spark import Quiet, sqlite_spec
from tests.support.servers.kafka import own_topics
from tests.support.servers.running import running

SESSIONS_OF = 10  # events per session
TENANTS = 50
TAIL = 10_000
WARMING = 20_000  # events of the first run
PARTITIONS = 4  # of the log on Kafka
HEAD = """
| source | events | sessions | plain fold, s (processor) | Spark, s (processor) | times the plain fold | events/s per core |
| --- | --- | --- | --- | --- | --- | --- |"""


class Processes:
    """This process, and Spark's: what runs below it just now and all that they start, but no server that is started later."""

    def __init__(self) -> None:
        self._roots = psutil.Process().children()

    def processor_s(self) -> float:
        """Return the processor time of all of them."""
        total = sum(os.times()[:2])
        for each in self._spark():
            with contextlib.suppress(psutil.Error):
                total += sum(each.cpu_times()[:4])
        return total

    def peaks_mib(self) -> list[int]:
        """Return the highest resident size that each living one of Spark's ever had."""
        found = []
        for each in self._spark():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{each.pid}/status").read_text(encoding="ascii").splitlines()
                found += [int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")]
        return found or [0]

    def _spark(self) -> list[psutil.Process]:
        return [*self._roots, *(child for root in self._roots for child in root.children(recursive=True))]


@dataclass(frozen=True, slots=True)
class Bench:
    spark: SparkSession
    settings: SparkSettings
    processes: Processes


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


def copy_to_kafka(log: Path, count: int, settings: Kafka) -> KafkaLog:
    """Append a log of SQLite to the topics of Kafka."""
    with (
        closing(KafkaEvents(settings)) as kafka,
        closing(SqliteEvents(open_database(log, EVENTS, ManualClock(), print))) as source,
    ):
        for after in range(0, count, 2_000):
            kafka.append([logged.event for logged in source.read((after,), 2_000)])
    return KafkaLog(settings.brokers, settings.topic_prefix)


def measure(bench: Bench, count: int, kafka: Services | None) -> str:
    """Print a row of the table, of `events.db` unless Kafka is given; return what is to be told below it, if anything."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, mill = Path(name), EventMill(max(1, count // SESSIONS_OF), TENANTS)
        make_log(folder / "events.db")
        append(folder / "events.db", mill.events(count))
        place: KafkaLog | SqliteFile = SqliteFile(folder / "events.db")
        if kafka is not None:
            topics = stack.enter_context(own_topics(kafka, partitions=PARTITIONS))
            place = copy_to_kafka(folder / "events.db", count, topics)
        spec = replace(sqlite_spec(folder), events=place, spark=bench.settings)
        before_s, began = bench.processes.processor_s(), time.perf_counter()
        sessions = plain_fold(spec, folder / "plain.db")
        plain_s = time.perf_counter() - began
        between_s = bench.processes.processor_s()
        spark_s = compaction(bench.spark, replace(spec, options={"full": True}))
        busy_s = bench.processes.processor_s() - between_s
        cores = bench.spark.sparkContext.defaultParallelism
        print(
            f"| {'SQLite' if kafka is None else 'Kafka'} | {count:,} | {sessions:,} | {plain_s:.1f} ({between_s - before_s:.1f}) "
            f"| {spark_s:.1f} ({busy_s:.1f}) | {plain_s / spark_s:.2f} | {count / spark_s / cores:,.0f} |",
            flush=True,
        )
        if kafka is not None or count <= WARMING:
            return ""
        without_s, with_s = starts(folder, mill)
        return (
            f"Session states of {count + TAIL:,} events: {without_s:.2f} s without a checkpoint, {with_s:.2f} s with one and a tail "
            f"of {TAIL:,} ({without_s / with_s:.1f}x)"
        )


def main(arguments: Sequence[str] | None = None) -> str | None:
    """Return what could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--sources", choices=("sqlite", "kafka"), nargs="+", default=["sqlite", "kafka"])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="1g")
    given = parser.parse_args(arguments)
    settings = SparkSettings(master=given.master, driver_memory=given.memory, shuffle_partitions=8)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, SQLite {sqlite3.sqlite_version}")
    began = time.perf_counter()
    spark = start_session(settings, "bench")
    spark.range(1).count()
    print(f"Spark is up after {time.perf_counter() - began:.1f} s")
    bench = Bench(spark, settings, Processes())
    failed = ""
    try:
        for source in given.sources:
            try:
                measure_all(bench, given.events, source)
            except (ServicesError, IotHubError) as error:
                failed = f"{Path(__file__).stem}: the rows of {source} are not complete: {error}"
        peaks = bench.processes.peaks_mib()
    finally:
        spark.stop()
    print(f"\npeak memory of Spark's {len(peaks)} processes: {sum(peaks):,} MiB, the largest {max(peaks):,}")
    print(f"load average {os.getloadavg()[0]:.1f}")
    return failed or None


def measure_all(bench: Bench, counts: Sequence[int], source: str) -> None:
    with ExitStack() as stack:
        kafka = None
        if source == "kafka":
            kafka = Services(say=lambda line: sys.stderr.write(f"{line}\n") and None)
            stack.enter_context(running(kafka, "kafka"))
        print(HEAD)
        lines = [measure(bench, count, kafka) for count in (WARMING, *counts)]
        print("", *filter(None, lines), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
