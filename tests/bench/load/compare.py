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
import fnmatch
import json
import os
import pathlib
import signal
import sys
import time
import tomllib

from measures import COLUMNS, LOWER_IS_BETTER, WORKLOADS, dig, kind, main_value
from runs import BROKERS, TOOLS, one_run, version
from tables import summary, table


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
