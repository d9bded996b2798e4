"""`make bench`: the hub against the distribution's Mosquitto, authentication on in both, paired and interleaved.

Knows no broker (`brokers`), no goal (`workloads`) and no table (`report`): it runs turns with `load/compare.py` and keeps everything that
was measured in bench-results/. A ratio is taken within a turn; no run is repeated or left out.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "load")]

import accounts  # noqa: E402
import bench_auth  # noqa: E402
import bench_queues  # noqa: E402
import bench_streams  # noqa: E402
import compare  # noqa: E402
import drawing  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from brokers import roster  # noqa: E402
from measures import dig, main_value  # noqa: E402
from runs import TOOLS, one_run, version  # noqa: E402
from tables import summary  # noqa: E402
from workloads import OFFLINE, WORKLOADS, Workload  # noqa: E402

LATENCY_BOUND_MS = 500.0  # of "usable": no loss, and nobody waits longer (B73)
USABLE = "pair -n 50 -s 1024 -q {qos} --rate {rate}"

Run = dict[str, Any]


def options(seconds: float, warmup: float) -> argparse.Namespace:
    """What `compare` needs to know of every run: broker on CPU 0, load on CPU 1."""
    return argparse.Namespace(
        seconds=seconds,
        warmup=warmup,
        threads=1,
        broker_cpus="0",
        load_cpus="1",
        limit=240,
        tool=TOOLS / "mqttload",
    )


class Bench:
    """One call of `make bench`."""

    def __init__(self, results: Path, *, is_quick: bool, only: str = "*", peers_file: Path | None = None) -> None:
        """Raises PeersError."""
        self.is_quick = is_quick
        self.only = only
        self.turns = 1 if is_quick else 3
        self.settings = options(1.0, 0.5) if is_quick else options(3.0, 1.0)
        self.results = results
        folder = Path(tempfile.gettempdir()) / "iothub-bench-accounts"
        accounts.make(folder / "many", accounts.MANY)
        accounts.make(folder / "few", accounts.FEW)
        self.accounts = folder / "many"
        self.folder = folder
        self.brokers = roster(folder / "many", folder / "few")
        self.peers = {} if peers_file is None else peers.read(peers_file, frozenset(self.brokers))
        self.record: dict[str, Any] = {
            "about": compare.machine() | {"turns": self.turns, "seconds": self.settings.seconds, "is_quick": is_quick},
            "versions": {name: version(self.brokers[name]) for name in ("mosquitto", "iothub")}
            | {name: version(peer) for name, peer in self.peers.items()},
        }

    def run(self) -> int:
        """Run everything; 1 if a run was faulty or a bound was missed."""
        wanted = [workload for workload in WORKLOADS if fnmatch.fnmatch(workload.name, self.only)]
        rows = [self.compared(workload) for workload in wanted if workload.is_quick or not self.is_quick]
        self.keep("workloads", rows)
        (self.results / "bench.svg").write_text(drawing.svg(rows, self.record["about"]["date"]), encoding="utf-8")
        if self.only != "*":
            sys.stdout.write(
                "\n\n".join(filter(None, (report.compared(self.record), report.beside(self.record)))) + "\n"
            )
            return 0
        self.keep("offline", self.offline())
        self.keep("usable", {f"QoS {qos}": self.usable(qos) for qos in ((1,) if self.is_quick else (0, 1))})
        self.keep("queue_table", self.queue_table())
        self.keep("auth_table", bench_auth.table(bench_auth.LEVELS, 0.3 if self.is_quick else 3.0))
        self.keep("stream_table", self.stream_table())
        text = report.markdown(self.record)
        (self.results / "bench.md").write_text(text, encoding="utf-8")
        sys.stdout.write(text)
        return int(report.is_missed(self.record))

    def keep(self, part: str, found: object) -> None:
        """Write what is known so far: an interrupted bench has its first parts."""
        self.record[part] = found
        (self.results / "bench.json").write_text(json.dumps(self.record, indent=1), encoding="utf-8")

    def once(self, broker: str, spec: str, settings: argparse.Namespace | None = None) -> Run:
        began = time.strftime("%H:%M:%S")
        run: Run = one_run(broker, self.brokers[broker], spec, settings or self.settings)
        value = main_value(spec, run)
        fault = f" INVALID {'; '.join(run['invalid'])}" if run["invalid"] else ""
        sys.stderr.write(f"{began} {broker:22s} {value if value is not None else '-':>12} {spec}{fault}\n")
        return run

    def compared(self, workload: Workload) -> dict[str, Any]:
        """Let them take turns: A B, B A, ...; A B C, B C A, C A B, ..."""
        others = peers.beside(workload, self.peers)
        for name in others:
            self.brokers[name] = peers.with_accounts(self.peers[name], self.folder / peers.PLAIN[workload.baseline])
        names = [workload.baseline, workload.hub, *others]
        runs: dict[str, list[Run]] = {name: [] for name in names}
        for turn in range(self.turns):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                runs[name].append(self.once(name, workload.options))
        rows = summary(workload.options, names, runs)
        return {"name": workload.name, "options": workload.options, "brokers": names, "rows": rows, "runs": runs}

    def offline(self) -> list[Run]:
        """Durable QoS 1 for sessions that are away, on two cores including the load. Mosquitto keeps nothing durably: no pair."""
        settings = options(self.settings.seconds, 0.0)
        settings.broker_cpus = settings.load_cpus = "0-1"
        spec = OFFLINE.format(messages=40 if self.is_quick else 200)
        return [self.once("iothub", spec, settings) for _ in range(self.turns)]

    def usable(self, qos: int) -> dict[str, Any]:
        """Find each broker's largest rate without loss below the bound; then both at half of the smaller one."""
        names = ("mosquitto", "iothub")
        found = dict.fromkeys(names, 0)
        low, high = dict.fromkeys(names, 0), {}
        for name in names:  # closed loop: nobody does much more than that
            run = self.once(name, USABLE.partition(" --rate")[0].format(qos=qos))
            high[name] = int((dig(run, "throughput") or 1000) * 1.5)
        for _ in range(3 if self.is_quick else 6):
            for name in names:
                rate = (low[name] + high[name]) // 2
                if is_usable(self.once(name, USABLE.format(qos=qos, rate=rate))):
                    low[name] = found[name] = rate
                else:
                    high[name] = rate
        half = max(min(found.values()) // 2, 100)
        calm = {name: [self.once(name, USABLE.format(qos=qos, rate=half)) for _ in range(self.turns)] for name in names}
        p99 = {name: [dig(run, "latency_ms.p99") for run in runs] for name, runs in calm.items()}
        return {"usable_per_s": found, "half_rate_per_s": half, "p99_ms_at_half": p99}

    def queue_table(self) -> list[dict[str, float | str]]:
        """The stores alone, each driver: appends at several batch sizes, reads, acknowledgements."""
        with tempfile.TemporaryDirectory(dir=self.results) as folder:
            return bench_queues.table(bench_queues.DRIVERS, Path(folder), 0.5 if self.is_quick else 5.0)

    def stream_table(self) -> list[dict[str, Any]]:
        """Streams against an ordinary subscriber, with a Kafka on this machine."""
        chosen = bench_streams.options(self.settings.seconds, self.settings.warmup)
        return bench_streams.table(self.accounts, chosen, self.turns)


def is_usable(run: Run) -> bool:
    """No fault, and the slowest message in a thousand came in time."""
    latency_ms = dig(run, "latency_ms.p999")
    return not run["invalid"] and latency_ms is not None and latency_ms < LATENCY_BOUND_MS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short turn of the most telling workloads")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="these workloads alone, e.g. 'connect*'; writes no report"
    )
    parser.add_argument(
        "--peers", type=Path, metavar="FILE", help="TOML with further brokers that take turns with these two"
    )
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    chosen = parser.parse_args()
    chosen.results.mkdir(parents=True, exist_ok=True)
    try:
        bench = Bench(chosen.results.resolve(), is_quick=chosen.quick, only=chosen.only, peers_file=chosen.peers)
    except peers.PeersError as error:
        sys.stderr.write(f"make bench: {error}\n")
        return 2
    return bench.run()


if __name__ == "__main__":
    sys.exit(main())
