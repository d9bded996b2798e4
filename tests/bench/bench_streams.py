"""A stream into a plain kafka-python consumer against ordinary subscribers of QoS 1: the same publishers and messages, in turns.

`ONLY=streams make bench` is this alone; it starts Kafka of `make services` if it does not run, and stops it again. One subscriber is an application
in Python, as the consumer is (`application`); the other is `mqttload` itself, in C, which costs next to nothing. Their sessions stay. All check every
message. Nothing is pinned: hub, publishers and what is behind the hub, Kafka too, share all CPUs of the machine. Knows no goal.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "load"), str(HERE.parents[1])]

import accounts  # noqa: E402
import brokers  # noqa: E402
from runs import TOOLS, Broker, one_run  # noqa: E402

from iothub.config.sections import Kafka  # noqa: E402
from ops.services.errors import ServicesError  # noqa: E402
from ops.services.services import Services  # noqa: E402
from tests.support.servers.kafka import own_topics  # noqa: E402
from tests.support.servers.running import running  # noqa: E402

STREAM = "bench"
PARTITIONS = 4
KINDS = ("mqttload", "paho", "stream")
LIMIT_S = 120.0

Run = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """Who publishes what; there is one subscriber or consumer for all of it."""

    name: str
    options: str


SHAPES = (
    Shape("50 publishers, 1 KiB, window 20", "-n 50 -s 1024 -q 1 -W 20"),
    Shape("fan-in 1,000 -> 1, 256 bytes, window 4", "-n 1000 -s 256 -q 1 -W 4"),
)
_TOML = """
[kafka]
brokers = ["{broker}"]
topic_prefix = "{prefix}"
replication = 1
"""


class Harness:
    """Kafka with a topic of our own, and a prepared data directory with a stream into it."""

    def __init__(self, services: Services, kafka: Kafka, data: Path, folder: Path) -> None:
        self.services = services
        broker = str(kafka.brokers[0])
        self.words = ("kafka", broker, f"{kafka.topic_prefix}.{accounts.TENANT}.{STREAM}")
        self.folder = folder
        shutil.copytree(data / "hub", folder / "hub")
        with (folder / "hub" / "iothub.toml").open("a", encoding="utf-8") as file:
            file.write(_TOML.format(broker=broker, prefix=kafka.topic_prefix))
        hub = (accounts.IOTHUB, "--data-dir", str(folder / "hub"))
        create = ("stream", "create", accounts.TENANT, STREAM, "bench/#", "--partitions", str(PARTITIONS))
        subprocess.run([*hub, *create], check=True, capture_output=True)

    def kafka_cpu_s(self) -> float:
        return next(report.cpu_s for report in self.services.reports() if report.name == "kafka")


@contextmanager
def opened(data: Path) -> Iterator[Harness]:
    """Give a harness; a Kafka that runs goes on, one that was started here is stopped. Raises ServicesError."""
    services = Services(say=lambda line: sys.stderr.write(f"{line}\n") and None)
    with running(services, "kafka"), own_topics(services) as kafka, tempfile.TemporaryDirectory() as folder:
        yield Harness(services, kafka, data, Path(folder))


def subscribed(data: Path, shape: Shape, options: argparse.Namespace) -> Run:
    """Run the hub with a subscriber in C; its messages are in the publishers' windows until it has them."""
    run: Run = one_run("subscriber", brokers.iothub(data), f"fanin {shape.options} --no-clean", options)
    return {
        "invalid": run["invalid"],
        "acked_per_s": run.get("ack_rate"),
        "received_per_s": run.get("throughput"),
        "hub_cpu_us": run.get("broker", {}).get("us_per_msg"),
        "p99_ms": run.get("latency_ms", {}).get("p99"),
        "run": run,
    }


def applied(kind: str, harness: Harness, data: Path, shape: Shape, options: argparse.Namespace) -> Run:
    """Run the hub with an application in Python behind it: a subscriber, or a stream's consumer."""
    broker = Broker(kind, brokers.iothub(harness.folder if kind == "stream" else data), options)
    run: Run = {"invalid": []}
    figures: Run = {}
    try:
        if broker.start():
            application = _application(harness.words if kind == "stream" else _words(broker.port))
            kafka_cpu_s = harness.kafka_cpu_s()
            run = broker.run(f"publish {shape.options}")
            figures = _figures(application, run.get("acked", 0))
            run["kafka_cpu_s"] = harness.kafka_cpu_s() - kafka_cpu_s
        run["invalid"] = broker.problems + run["invalid"]
    finally:
        run["invalid"] += broker.stop()
    return _measured(run, figures, is_stream=kind == "stream")


def _words(port: object) -> tuple[str, ...]:
    return ("mqtt", str(port), f"{accounts.TENANT}/dev0", accounts.SECRET)


def _application(words: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "application.py"), *words]
    application = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert application.stdout is not None
    if application.stdout.readline() != "ready\n":
        application.kill()
        raise ServicesError(f"the application did not begin: {' '.join(words)}")
    return application


def _figures(application: subprocess.Popen[str], count: int) -> Run:
    try:
        text, _ = application.communicate(f"{count}\n", timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        application.kill()
        return {}
    return json.loads(text) if text else {}  # type: ignore[no-any-return]


def _measured(run: Run, figures: Run, *, is_stream: bool) -> Run:
    """What a subscriber that is behind costs the hub falls out of the window, so it is not told."""
    acked, received = run.get("acked", 0), figures.get("received", 0)
    invalid = list(run["invalid"])
    if not invalid and (received != acked or figures["wrong"]):
        invalid.append(
            f"{acked} acknowledged, {received} received, {figures.get('wrong')} lost, doubled or out of order"
        )
    if invalid:
        return {"invalid": invalid, "run": run}
    arrivals = [at for at, _ in figures["arrivals"]]
    ended = run["measured_from_s"] + run["measure_s"]
    return {
        "invalid": [],
        "acked_per_s": run["ack_rate"],
        "received_per_s": received / (arrivals[-1] - arrivals[0]),
        "hub_cpu_us": run["broker"]["us_per_msg"] if is_stream else None,
        "p99_ms": run["latency_ms"]["p99"],
        "application_cpu_us": figures["cpu_s"] / received * 1e6,
        "kafka_cpu_us": run["kafka_cpu_s"] / acked * 1e6 if is_stream else None,
        "behind_s": max(arrivals[-1] - ended, 0.0),
        "run": run,
    }


def table(data: Path, options: argparse.Namespace, turns: int, shapes: Sequence[Shape] = SHAPES) -> list[Row]:
    """Let the two take turns (A B, B A, ...). `data`: accounts as `accounts.make` leaves them. Without Kafka there are no rows."""
    try:
        with opened(data) as harness:
            return [_row(shape, data, harness, options, turns) for shape in shapes]
    except ServicesError as error:
        sys.stderr.write(f"bench: no table of streams: {error}\n")
        return []


def _row(shape: Shape, data: Path, harness: Harness, options: argparse.Namespace, turns: int) -> Row:
    runs: dict[str, list[Run]] = {kind: [] for kind in KINDS}
    for turn in range(turns):
        for name in KINDS if turn % 2 == 0 else reversed(KINDS):
            is_in_c = name == "mqttload"
            run = subscribed(data, shape, options) if is_in_c else applied(name, harness, data, shape, options)
            runs[name].append(run)
            figures = {key: value for key, value in run.items() if key != "run"}
            sys.stderr.write(f"{shape.name}: {name}: {json.dumps(figures)}\n")
    return {"name": shape.name, "options": shape.options, "runs": runs}


_MEASURES = (
    ("acked_per_s", "acknowledged to publishers, msg/s"),
    ("received_per_s", "received, from the first to the last, msg/s"),
    ("hub_cpu_us", "CPU µs/msg, hub"),
    ("p99_ms", "p99 ms"),
    ("application_cpu_us", "CPU µs/msg, application"),
    ("kafka_cpu_us", "CPU µs/msg, Kafka"),
    ("behind_s", "the last came after the window, s"),
)


def markdown(rows: Sequence[Row]) -> str:
    """Return the table for people."""
    lines = [
        "| publishers | measure | subscriber in C | subscriber in Python | stream, consumer in Python | to C (range) | to Python (range) |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        faults = "; ".join(reason for runs in row["runs"].values() for run in runs for reason in run["invalid"])
        if faults:
            lines.append(f"| {row['name']} | **INVALID** {faults.replace('|', '/')} | | | | | |")
            continue
        lines += [f"| {row['name']} | {text} | {_cells(row, key)} |" for key, text in _MEASURES]
    return "\n".join(lines)


def _cells(row: Row, key: str) -> str:
    values = {kind: [run.get(key) for run in row["runs"][kind]] for kind in KINDS}
    shown = [_number(statistics.median(each)) if None not in each else "-" for each in values.values()]
    return " | ".join([*shown, *(_ratio(values["stream"], values[kind]) for kind in ("mqttload", "paho"))])


def _ratio(ours: list[float], theirs: list[float | None]) -> str:
    others = [value for value in theirs if value]
    if len(others) < len(theirs):
        return "-"
    pairs = [mine / other for mine, other in zip(ours, others, strict=True)]
    return f"{statistics.median(ours) / statistics.median(others):.2f} ({min(pairs):.2f}-{max(pairs):.2f})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="A stream against an ordinary subscriber of QoS 1.")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each run")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    given = parser.parse_args()
    data = Path(tempfile.gettempdir()) / "iothub-bench-accounts" / "many"
    accounts.make(data, accounts.MANY)
    rows = table(data, options(given.seconds, 1.0), given.turns)
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "streams.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    text = markdown(rows) + "\n"
    (given.results / "streams.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def options(seconds: float, warmup: float) -> argparse.Namespace:
    """What `runs` needs to know of every run: nothing is pinned."""
    return argparse.Namespace(
        seconds=seconds,
        warmup=warmup,
        threads=1,
        broker_cpus="",
        load_cpus="",
        limit=240,
        tool=TOOLS / "mqttload",
    )


if __name__ == "__main__":
    main()
