#!/usr/bin/env python3
"""Compare MQTT brokers by paired, interleaved runs of mqttload.

    compare.py mosquitto floor -w pair-q0,pair-w1
    compare.py mosquitto mine --broker 'mine=./serve --port {port}' --args 'mine=-u acme/dev{id} -P secret'
    compare.py mosquitto live --running live=1883,4711 -w 'pair-*,idle'
    compare.py old new --brokers brokers.toml --reps 7 --json out.json --markdown out.md
    compare.py --list

The first broker named is the baseline.  For every workload the brokers take turns (A B C, B C A, ...), each run on
a freshly started broker (unless --running), so that a slow hour of the machine hits all of them alike; ratios are
taken within a turn.  Nothing is repeated, dropped or averaged away: a run in which a message was lost, duplicated,
reordered, damaged or misrouted, a connection broke, or the broker or one of its processes died makes the whole row
INVALID, with the reason, and the exit status 1.

A broker is a TOML table (--brokers FILE), or one of the built-in ones:

    [mine]
    start = "./serve --config {dir}/serve.conf"    # {port} {port2} {port3} {dir} {tools} and $VARIABLES are filled in
    files = { "serve.conf" = "listen = {port}" }   # written to {dir}, a new folder for every run
    args  = "-u acme/dev{id} -P secret"            # further mqttload options
    only  = ["pair-*", "idle"]                     # workloads it supports (default: all); others show as n/a
    cpus  = "0,1"                                  # instead of --broker-cpus
    env   = { NAME = "value" }
    fatal = "Traceback|panic:"                     # a log line that matches makes the run INVALID
    ready_seconds = 20
    children_may_exit = false
    version = "./serve --version"                  # first line of its output goes into the report
"""

# ruff: noqa: RUF001  (the tables are made for people, with typographic signs)
from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import pathlib
import random
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

TOOLS = pathlib.Path(__file__).resolve().parent

MOSQUITTO_CONF = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 100000
max_inflight_messages 20
log_dest none
"""
BROKERS = {
    "mosquitto": {
        "start": "mosquitto -c {dir}/mosquitto.conf",
        "files": {"mosquitto.conf": MOSQUITTO_CONF},
        "version": "mosquitto -h",
    },
    "floor": {"start": "{tools}/mqttfloor {port}", "only": ["pair-q0", "pair-w1"]},
    "floor-qos1": {"start": "{tools}/mqttfloor {port} qos1", "only": ["pair-q1", "pair-q1-w1", "pairs-1000"]},
    "floor-bulk": {"start": "{tools}/mqttfloor {port} bulk", "only": ["pair-q0"]},
    "floor-bulk-qos1": {"start": "{tools}/mqttfloor {port} bulk qos1", "only": ["pair-q1", "pairs-1000"]},
}

WORKLOADS = {
    "pair-q0": "pair -n 50 -s 1024 -q 0 -W 20",
    "pair-q1": "pair -n 50 -s 1024 -q 1 -W 20",
    "pair-q2": "pair -n 50 -s 1024 -q 2 -W 20",
    "pair-w1": "pair -n 50 -s 1024 -q 0 -W 1 --batch 1",
    "pair-q1-w1": "pair -n 50 -s 1024 -q 1 -W 1 --batch 1",
    "pairs-1000": "pair -n 1000 -s 256 -q 1 -W 20",
    "wild-1000": "wild -n 1000 -s 256 -q 1 -W 20",
    "fanout": "fanout -n 1000 -s 256 -q 0 -W 20",
    "fanin": "fanin -n 1000 -s 256 -q 0 -W 4",
    "rate": "pair -n 50 -s 256 -q 1 --rate 2000",
    "retained": "retained -n 2000 --subs 50 -s 256 -q 1",
    "offline": "offline -n 200 --messages 100 -s 256 -q 1",
    "storm": "storm -n 50",
    "idle": "conn -n 5000 -k 300 --src-ips 4",
}

# Columns by kind of workload: heading, path in mqttload's JSON, factor, format, with ratio to the baseline.
COLUMNS = {
    "closed loop": [
        ("msg/s", "throughput", 1, "{:,.0f}", True),
        ("CPU µs/msg", "broker.us_per_msg", 1, "{:.2f}", True),
        ("p50 ms", "latency_ms.p50", 1, "{:.3g}", False),
        ("p99 ms", "latency_ms.p99", 1, "{:.3g}", False),
        ("p99.9 ms", "latency_ms.p999", 1, "{:.3g}", False),
        ("RSS MiB", "broker.rss_after_kb", 1 / 1024, "{:.1f}", False),
        ("generator CPU µs/msg", "generator.us_per_msg", 1, "{:.2f}", False),
    ],
    "open loop": [
        ("p50 ms", "latency_ms.p50", 1, "{:.3g}", True),
        ("p99 ms", "latency_ms.p99", 1, "{:.3g}", True),
        ("p99.9 ms", "latency_ms.p999", 1, "{:.3g}", False),
        ("CPU µs/msg", "broker.us_per_msg", 1, "{:.2f}", True),
        ("generator lag p99 ms", "generator_lag_ms.p99", 1, "{:.3g}", False),
    ],
    "retained": [
        ("deliveries/s", "drain_rate", 1, "{:,.0f}", True),
        ("CPU µs/delivery", "broker.us_per_msg", 1, "{:.2f}", True),
        ("publish/s", "publish_rate", 1, "{:,.0f}", False),
        ("bytes/stored message", "broker.bytes_per_stored_message", 1, "{:,.0f}", False),
    ],
    "offline": [
        ("drain msg/s", "drain_rate", 1, "{:,.0f}", True),
        ("publish msg/s", "publish_rate", 1, "{:,.0f}", True),
        ("CPU µs/msg", "broker.us_per_msg", 1, "{:.2f}", True),
        ("bytes/stored message", "broker.bytes_per_stored_message", 1, "{:,.0f}", False),
    ],
    "storm": [
        ("connects/s", "throughput", 1, "{:,.0f}", True),
        ("CPU µs/connect", "broker.us_per_msg", 1, "{:.1f}", True),
        ("p50 ms", "latency_ms.p50", 1, "{:.3g}", False),
        ("p99 ms", "latency_ms.p99", 1, "{:.3g}", False),
        ("generator CPU µs/connect", "generator.us_per_msg", 1, "{:.1f}", False),
    ],
    "conn": [
        ("RSS bytes/connection", "broker.rss_bytes_per_connection", 1, "{:,.0f}", True),
        ("RSS MiB with all", "broker.rss_connected_kb", 1 / 1024, "{:.1f}", False),
        ("connects/s", "connect.rate", 1, "{:,.0f}", False),
        ("CPU cores while idle", "broker.cores", 1, "{:.3f}", False),
    ],
}
LOWER_IS_BETTER = ("open loop", "conn")  # kinds whose first column is a cost
MUST_BE_ZERO = ("lost", "duplicated", "out_of_order", "misrouted", "foreign", "corrupt")
FATAL = (
    r"Traceback \(most recent|AddressSanitizer|ThreadSanitizer|runtime error:|[Ss]egmentation fault|core dumped|panic:"
)


def kind(spec: str) -> str:
    mode = spec.split()[0]
    if mode in COLUMNS:
        return mode
    return "open loop" if re.search(r"\s--(pub-)?rate\b", spec) else "closed loop"


def dig(data: dict, path: str) -> float | None:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


# ---------------------------------------------------------------- processes and ports, through /proc


def start_time(pid: int) -> str | None:
    """What tells a process from a later one with the same number; None for none and for a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def tree(root: int) -> dict[int, str]:
    """The living process and all its descendants: {pid: start time}."""
    parent = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, grew = {root}, True
    while grew:
        more = {p for p, pp in parent.items() if pp in found} - found
        found |= more
        grew = bool(more)
    return {p: t for p in found if (t := start_time(p))}


def listens(pids: dict[int, str], port: int) -> bool:
    """Does one of these processes, and not somebody else's broker, listen on the port?"""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            f = line.split()
            if f[3] == "0A" and int(f[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{f[9]}]")
    unknown = True
    for pid in pids:
        try:
            open_files = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        unknown = False
        if inodes.intersection(open_files):
            return True
    return unknown and bool(inodes)  # another user's process: take its word


def free_ports(n: int) -> int:
    """The first of n consecutive ports nobody uses, below the range of outgoing connections."""
    for _ in range(200):
        first = random.randrange(20000, 32000)
        try:
            for port in range(first, first + n):
                with socket.socket() as s:
                    s.bind(("0.0.0.0", port))
            return first
        except OSError:
            continue
    sys.exit("compare: no free ports")


def cpu_set(text: str) -> set[int]:
    cpus = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        cpus |= set(range(int(low), int(high or low) + 1))
    return cpus


# ---------------------------------------------------------------- one broker, one run


class Broker:
    """A broker for one run: started afresh, or one that runs already."""

    def __init__(self, name: str, spec: dict, o: argparse.Namespace):
        self.name, self.spec, self.o = name, spec, o
        self.proc = self.log = self.folder = None
        self.port, self.pid = spec.get("port"), spec.get("pid")
        self.problems: list[str] = []

    def fill(self, text: str) -> str:
        for key, value in {
            "port": self.port,
            "port2": self.port + 1,
            "port3": self.port + 2,
            "dir": self.folder and self.folder.name,
            "tools": TOOLS,
        }.items():
            text = text.replace("{" + key + "}", str(value))
        return os.path.expandvars(text)

    def start(self) -> bool:
        if self.pid is None:
            self.folder = tempfile.TemporaryDirectory(prefix="compare-")
            os.chmod(self.folder.name, 0o755)
            self.port = free_ports(3)
            for file, text in self.spec.get("files", {}).items():
                (pathlib.Path(self.folder.name) / file).write_text(self.fill(text))
            cpus = self.spec.get("cpus") or self.o.broker_cpus
            self.log = open(pathlib.Path(self.folder.name) / "broker.log", "w+b")  # noqa: SIM115  (open as long as the broker runs)
            try:
                self.proc = subprocess.Popen(
                    shlex.split(self.fill(self.spec["start"])),
                    stdin=subprocess.DEVNULL,
                    stdout=self.log,
                    stderr=self.log,
                    start_new_session=True,
                    env=os.environ | {k: self.fill(v) for k, v in self.spec.get("env", {}).items()},
                    preexec_fn=(lambda: os.sched_setaffinity(0, cpu_set(cpus))) if cpus else None,
                )
            except OSError as e:
                self.problems.append(f"did not start: {e}")
                return False
            self.pid = self.proc.pid
        end = time.monotonic() + self.spec.get("ready_seconds", 20)
        while time.monotonic() < end:
            if self.ended():
                self.problems.append(f"ended before it was ready ({self.ended()}): {self.tail()}")
                return False
            if listens(tree(self.pid), self.port) and self.load("conn -n 1 -t 0 --phase-timeout 3")["ok"]:
                return True
            time.sleep(0.1)
        self.problems.append(f"not ready: does not listen on port {self.port}, or refuses clients: {self.tail()}")
        return False

    def ended(self) -> str | None:
        """How the broker's first process came to an end, if it did."""
        if self.proc is None:
            return None if start_time(self.pid) else "process is gone"
        code = self.proc.poll()
        if code is None:
            return None
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def tail(self) -> str:
        if not self.log:
            return ""
        self.log.flush()
        lines = pathlib.Path(self.log.name).read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:])[-300:]

    def load(self, spec: str) -> dict:
        mode, *rest = shlex.split(spec)
        o = self.o
        command = [
            str(o.tool),
            mode,
            "-p",
            str(self.port),
            "-t",
            str(o.seconds),
            "-w",
            str(o.warmup),
            "-T",
            str(o.threads),
            *rest,
            *shlex.split(self.fill(self.spec.get("args", ""))),
            "--pid",
            str(self.pid),
            "--label",
            self.name,
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=o.limit,
                preexec_fn=(lambda: os.sched_setaffinity(0, cpu_set(o.load_cpus))) if o.load_cpus else None,
            )
        except subprocess.TimeoutExpired:
            return {"ok": False, "error": f"mqttload not done within {o.limit} s"}
        try:
            result = json.loads(done.stdout)
        except ValueError:
            result = {"error": f"mqttload gave no result: {done.stderr.strip()[-200:]}"}
        result["ok"] = bool(result.get("ok")) and done.returncode == 0
        result["command"] = shlex.join(command)
        return result

    def run(self, spec: str) -> dict:
        """One measured run; "invalid" lists everything that speaks against it."""
        before = tree(self.pid)
        result = self.load(spec)
        bad = []
        if how := self.ended():
            bad.append(f"broker died during the run ({how})")
        elif not self.spec.get("children_may_exit"):
            after = tree(self.pid)
            gone = [p for p, t in before.items() if after.get(p) != t]
            if gone:
                bad.append(f"{len(gone)} of the broker's processes died during the run")
        faults = dict(result.get("faults", {}))
        if self.spec.get("children_may_exit") and set(faults) == {"broker_child_died"}:
            result["ok"] = not result.get("error")
        faults.pop("broker_process_died", None)  # said better above
        faults.pop("broker_child_died", None)
        for key in MUST_BE_ZERO:  # not taken on trust from "ok"
            if result.get(key):
                faults[key] = result[key]
        if faults:
            bad.append(
                ", ".join(f"{k} {v}" for k, v in faults.items())
                + (f" ({result['first_problem']})" if result.get("first_problem") else "")
            )
        if result.get("error"):
            bad.append(result["error"])
        if not result["ok"] and not bad:
            bad.append("mqttload said no")
        if not bad and not main_value(spec, result) and kind(spec) != "conn":  # conn: memory may not have grown
            bad.append("measured nothing")
        result["invalid"] = bad
        return result

    def stop(self) -> list[str]:
        """End what start() started, and nothing else.  Returns what was wrong with its end or its log."""
        bad = []
        if self.proc:
            died = self.ended()
            if not died:
                self.proc.terminate()
                try:
                    code = self.proc.wait(10)
                    if code < 0 and code != -signal.SIGTERM:
                        bad.append(f"crashed while stopping ({signal.Signals(-code).name})")
                except subprocess.TimeoutExpired:
                    bad.append("did not stop within 10 s of SIGTERM")
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.proc.pid, signal.SIGKILL)
            self.proc.wait()
        if self.log:
            self.log.flush()
            text = pathlib.Path(self.log.name).read_text(errors="replace")
            if found := re.search(self.spec.get("fatal", FATAL), text):
                bad.append(f"its log says: {text[found.start() : found.start() + 160].strip().splitlines()[0]}")
            self.log.close()
        if self.folder:
            self.folder.cleanup()
        return bad


def main_value(spec: str, result: dict) -> float | None:
    return dig(result, COLUMNS[kind(spec)][0][1])


def one_run(name: str, spec: dict, workload: str, o: argparse.Namespace) -> dict:
    broker = Broker(name, spec, o)
    result = {"invalid": []}
    try:
        if broker.start():
            result = broker.run(workload)
        result["invalid"] = broker.problems + result["invalid"]
    finally:
        ending = broker.stop()
    result["invalid"] += ending
    return result


# ---------------------------------------------------------------- table


def summary(workload: str, names: list[str], runs: dict[str, list[dict]]) -> list[dict]:
    """One row per broker: medians, ranges, ratios to the first broker's run of the same turn."""
    rows, base = [], runs[names[0]]
    for name in names:
        mine = runs[name]
        row = {"broker": name, "runs": len(mine), "invalid": [], "notes": [], "cells": {}}
        rows.append(row)
        if not mine:
            continue
        reasons: dict[str, int] = {}
        for r in mine:
            for reason in r["invalid"]:
                reasons[reason] = reasons.get(reason, 0) + 1
        failed = sum(bool(r["invalid"]) for r in mine)
        if failed:
            row["invalid"] = [f"{failed} of {len(mine)} runs", *reasons]
            continue
        for heading, path, factor, _, with_ratio in COLUMNS[kind(workload)]:
            values = [dig(r, path) for r in mine]
            if any(v is None for v in values):
                continue
            values = [v * factor for v in values]
            cell = {"median": statistics.median(values), "min": min(values), "max": max(values)}
            if with_ratio and name != names[0] and not any(r["invalid"] for r in base):
                others = [dig(r, path) * factor for r in base]
                if all(others):
                    pairs = [v / b for v, b in zip(values, others, strict=False)]
                    cell |= {
                        "ratio": cell["median"] / statistics.median(others),
                        "ratio_min": min(pairs),
                        "ratio_max": max(pairs),
                    }
            row["cells"][heading] = cell
        threads = mine[0].get("threads", 1)
        busiest = max(dig(r, "generator.cores") or 0 for r in mine)
        load, work = (
            statistics.median(dig(r, p) or 0 for r in mine) for p in ("generator.us_per_msg", "broker.us_per_msg")
        )
        other = [dig(r, "machine.other_cores") or 0 for r in mine]
        if kind(workload) in ("closed loop", "storm") and (busiest > 0.93 * threads or load / threads > 0.9 * work):
            row["notes"].append("generator-bound: the rate says little, compare CPU")
        if statistics.median(other) > 0.3:
            row["notes"].append(f"disturbed: others used {min(other):.1f}–{max(other):.1f} cores")
        if n := sum(r.get("redelivered", 0) for r in mine):
            row["notes"].append(f"{n} redelivered with DUP")
        if n := sum(dig(r, "errors.stalls") or 0 for r in mine):
            row["notes"].append(f"{n} stalls over 1 s")
    return rows


def table(name: str, workload: str, rows: list[dict]) -> str:
    columns = COLUMNS[kind(workload)]
    heads = ["broker", "runs"]
    for heading, *_, with_ratio in columns:
        heads += [heading + " (min–max)", "×"] if with_ratio else [heading]
    heads += ["notes"]
    out = [
        f"### {name}: `{workload}`",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "|".join("---" if h in ("broker", "notes") else "--:" for h in heads) + "|",
    ]
    for row in rows:
        if not row["runs"]:
            continue
        cells = [row["broker"], str(row["runs"])]
        for heading, _, _, fmt, with_ratio in columns:
            c = row["cells"].get(heading)
            if not c:
                cells += ["–", "–"] if with_ratio else ["–"]
                continue
            text = fmt.format(c["median"])
            if with_ratio:
                text += f" ({fmt.format(c['min'])}–{fmt.format(c['max'])})"
            cells.append(text)
            if with_ratio:
                cells.append(
                    f"{c['ratio']:.2f} ({c['ratio_min']:.2f}–{c['ratio_max']:.2f})"
                    if "ratio" in c
                    else "1"
                    if row is rows[0]
                    else "–"
                )
        note = "; ".join(row["notes"])
        if row["invalid"]:
            note = "**INVALID** " + "; ".join(row["invalid"]).replace("|", "/")
        out.append("| " + " | ".join([*cells, note]) + " |")
    if absent := [row["broker"] for row in rows if not row["runs"]]:
        out += ["", f"Not run, declared as unsupported: {', '.join(absent)}."]
    return "\n".join(out)


def machine() -> dict:
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cpu": model,
        "cpus": os.cpu_count(),
        "kernel": os.uname().release,
        "load_at_start": os.getloadavg()[0],
    }


def version(spec: dict) -> str:
    if not spec.get("version"):
        return ""
    try:
        command = os.path.expandvars(spec["version"]).replace("{tools}", str(TOOLS))
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=10)
        return (done.stdout + done.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return "unknown"


# ---------------------------------------------------------------- command line


def options() -> tuple[argparse.Namespace, dict, dict]:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("names", nargs="*", metavar="BROKER", help="the first is the baseline")
    a.add_argument(
        "--brokers",
        action="append",
        default=[],
        metavar="FILE",
        help="TOML tables of brokers; a table [workloads] adds workloads",
    )
    a.add_argument(
        "--broker", action="append", default=[], metavar="NAME=COMMAND", help="a broker by its start command"
    )
    a.add_argument("--running", action="append", default=[], metavar="NAME=PORT,PID", help="a broker that runs already")
    a.add_argument(
        "--args", action="append", default=[], metavar="NAME=OPTIONS", help="further mqttload options for one broker"
    )
    a.add_argument(
        "-w",
        "--workloads",
        default="pair-q0,pair-q1,pair-w1,pairs-1000,fanout,fanin,storm,idle",
        help="names or patterns, comma-separated (%(default)s)",
    )
    a.add_argument(
        "--workload", action="append", default=[], metavar="NAME=OPTIONS", help="a workload of your own, run besides"
    )
    a.add_argument("--reps", type=int, default=5, help="turns per workload (%(default)s)")
    a.add_argument("--seconds", type=float, default=3, help="measured time per run (%(default)s)")
    a.add_argument("--warmup", type=float, default=1)
    a.add_argument("--threads", type=int, default=1, help="generator threads (%(default)s)")
    a.add_argument("--broker-cpus", default="", metavar="LIST", help="pin the broker, e.g. 0 or 0-1")
    a.add_argument("--load-cpus", default="", metavar="LIST", help="pin the generator")
    a.add_argument("--limit", type=float, default=240, help="seconds one run may take in all (%(default)s)")
    a.add_argument(
        "--min-ratio",
        type=float,
        default=0,
        metavar="R",
        help="exit 1 if a broker is not R times as good as the baseline in the first column",
    )
    a.add_argument("--json", metavar="FILE", help="every run and the summary")
    a.add_argument("--markdown", metavar="FILE", help="the tables")
    a.add_argument("--tool", type=pathlib.Path, default=TOOLS / "mqttload")
    a.add_argument("--list", action="store_true", help="brokers and workloads known")
    o = a.parse_args()

    brokers, workloads = {k: dict(v) for k, v in BROKERS.items()}, dict(WORKLOADS)
    for file in o.brokers:
        with open(file, "rb") as f:
            data = tomllib.load(f)
        workloads |= data.pop("workloads", {})
        brokers |= data
    for text in o.broker:
        name, _, command = text.partition("=")
        brokers[name] = {"start": command}
    for text in o.running:
        name, _, where = text.partition("=")
        port, _, pid = where.partition(",")
        if not (port.isdigit() and pid.isdigit()):
            a.error("--running NAME=PORT,PID")
        brokers[name] = {"port": int(port), "pid": int(pid)}
    for text in o.args:
        name, _, more = text.partition("=")
        if name not in brokers:
            a.error(f"--args for an unknown broker {name}")
        brokers[name]["args"] = more
    chosen = {}
    for pattern in filter(None, o.workloads.split(",")):
        hits = {n: s for n, s in workloads.items() if fnmatch.fnmatch(n, pattern)}
        if not hits:
            a.error(f"no workload {pattern}")
        chosen |= hits
    for text in o.workload:
        name, _, spec = text.partition("=")
        chosen[name] = spec
    if o.list:
        print("brokers:", ", ".join(brokers))
        for name, spec in workloads.items():
            print(f"  {name:12s} {spec}")
        sys.exit(0)
    if not o.names:
        a.error("which brokers?")
    for name in o.names:
        if name not in brokers:
            a.error(f"unknown broker {name} (--list)")
    if not o.tool.exists():
        a.error(f"{o.tool} is not built: run make")
    return o, {n: brokers[n] for n in dict.fromkeys(o.names)}, chosen


def main() -> int:
    o, brokers, workloads = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the broker is stopped too
    names = list(brokers)
    about = machine() | {
        "reps": o.reps,
        "seconds": o.seconds,
        "warmup": o.warmup,
        "generator_threads": o.threads,
        "broker_cpus": o.broker_cpus,
        "load_cpus": o.load_cpus,
        "versions": {n: version(s) for n, s in brokers.items()},
    }
    head = (
        f"{about['date']}, {about['cpu']}, {about['cpus']} CPUs, Linux {about['kernel']}; {o.reps} turns of {o.seconds:g} s; "
        f"broker on CPU {o.broker_cpus or 'any'}, generator ({o.threads} thread{'s' * (o.threads > 1)}) on CPU {o.load_cpus or 'any'}; "
        f"× = median relative to {names[0]} (range of the ratios within a turn)"
    )
    for n, v in about["versions"].items():
        if v:
            head += f"; {n}: {v}"
    report, record, bad = [head], {"about": about, "workloads": {}}, False
    print(head, flush=True)
    for workload, spec in workloads.items():
        runs: dict[str, list[dict]] = {n: [] for n in names}
        turn = [n for n in names if any(fnmatch.fnmatch(workload, p) for p in brokers[n].get("only", ["*"]))]
        for rep in range(o.reps if turn else 0):
            k = rep % len(turn)
            for name in turn[k:] + turn[:k]:
                began = time.strftime("%H:%M:%S")
                result = one_run(name, brokers[name], spec, o) | {"turn": rep, "at": began}
                runs[name].append(result)
                value = main_value(spec, result)
                print(
                    f"{began} {workload:12s} turn {rep} {name:18s} {value if value is not None else '-':>12} "
                    f"other {dig(result, 'machine.other_cores') or 0:.2f} {'INVALID ' + '; '.join(result['invalid']) if result['invalid'] else 'ok'}",
                    file=sys.stderr,
                    flush=True,
                )
        rows = summary(spec, names, runs)
        text = table(workload, spec, rows)
        print("\n" + text, flush=True)
        report.append(text)
        record["workloads"][workload] = {"spec": spec, "rows": rows, "runs": runs}
        first = COLUMNS[kind(spec)][0][0]
        for row in rows:
            ratio = row["cells"].get(first, {}).get("ratio")
            gain = ratio and (1 / ratio if kind(spec) in LOWER_IS_BETTER else ratio)
            bad |= bool(row["invalid"]) or (gain is not None and gain < o.min_ratio)
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps(record, indent=1))
        if o.markdown:
            pathlib.Path(o.markdown).write_text("\n\n".join(report) + "\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
