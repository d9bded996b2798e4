"""What `make bench` found, as a table for people; and whether a bound was missed.

Knows no broker and runs nothing: it reads the record that `bench` keeps.
"""

from __future__ import annotations

import statistics
from typing import Any

import bench_auth
import bench_streams
from tables import summary
from workloads import OFFLINE_LEAST, WORKLOADS, Workload

Record = dict[str, Any]
_WORKLOADS = {workload.name: workload for workload in WORKLOADS}


def markdown(record: Record) -> str:
    """Return the whole report."""
    about = record["about"]
    head = (
        f"{about['date']}, {about['cpu']}, {about['cpus']} CPUs, Linux {about['kernel']}, load at start {about['load_at_start']:.1f}; "
        f"{about['turns']} turn(s) of {about['seconds']:g} s; broker on CPU 0, load on CPU 1 (one thread), a fresh process and data directory "
        f"for every run, authentication on in both. {'; '.join(record['versions'].values())}."
    )
    tables = (compared, beside, _offline, _usable, _queues, _auth, _streams)
    parts = ["# make bench", head, *filter(None, (table(record) for table in tables))]
    return "\n\n".join(parts) + "\n"


def is_missed(record: Record) -> bool:
    """Whether a run was faulty or a bound was missed."""
    verdicts = [_verdict(_WORKLOADS[row["name"]], row) for row in record["workloads"]]
    return any(verdict != "yes" and verdict != "-" for verdict in (*verdicts, _offline_verdict(record)))


def compared(record: Record) -> str:
    lines = [
        "Ratio: median of the hub relative to the median of the baseline, in brackets the smallest and largest ratio of two runs of one turn.",
        "",
        "| workload | measure | baseline | iothub | ratio (range) | asked now | kept | goal | notes |",
        "|---|---|--:|--:|--:|--:|---|--:|---|",
    ]
    for row in record["workloads"]:
        workload = _WORKLOADS[row["name"]]
        base, hub = (part["cells"].get(workload.measure, {}) for part in row["rows"][:2])
        asked = (
            f"<= {workload.most_value:,.0f}"
            if workload.most_value
            else f"<= {workload.most:g}x"
            if workload.most
            else f">= {workload.least:g}x"
            if workload.least
            else "-"
        )
        goal = "-" if workload.goal is None else f"{workload.goal:g}x"
        notes = "; ".join(note for part in row["rows"][:2] for note in (*part["invalid"], *part["notes"]))
        cells = (
            *(row["name"], f"{workload.measure} ({row['brokers'][0]})", _number(base), _number(hub), _ratio(hub)),
            *(asked, _verdict(workload, row), goal, notes),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def beside(record: Record) -> str:
    """Return the table of the brokers that BENCH_PEERS names; empty without any."""
    rows = [row for row in record["workloads"] if len(row["brokers"]) > 2]
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row["brokers"][2:]))
    lines = [
        "**Further brokers** in the same turns: their median, and the hub's ratio to it (range within a turn); below 1 the hub is better.",
        "",
        "| workload | measure | iothub | " + " | ".join(names) + " |",
        "|---|---|--:|" + "--:|" * len(names),
    ]
    for row in rows:
        measure, hub = _WORKLOADS[row["name"]].measure, row["brokers"][1]
        cells = [
            _number(row["rows"][1]["cells"].get(measure, {})),
            *(_against(row, name, hub, measure) for name in names),
        ]
        lines.append("| " + " | ".join((row["name"], measure, *cells)) + " |")
    return "\n".join(lines)


def _against(row: Record, name: str, hub: str, measure: str) -> str:
    if name not in row["brokers"]:
        return "-"
    peer, ours = summary(row["options"], [name, hub], row["runs"])
    if peer["invalid"]:
        return "INVALID: " + "; ".join(peer["invalid"]).replace("|", "/")
    return f"{_number(peer['cells'].get(measure, {}))}: {_ratio(ours['cells'].get(measure, {}))}"


def _number(cell: Record) -> str:
    return f"{cell['median']:,.0f}" if cell.get("median", 0) >= 1000 else f"{cell['median']:.1f}" if cell else "-"


def _ratio(cell: Record) -> str:
    return f"{cell['ratio']:.2f} ({cell['ratio_min']:.2f}-{cell['ratio_max']:.2f})" if "ratio" in cell else "-"


def _verdict(workload: Workload, row: Record) -> str:
    if any(part["invalid"] for part in row["rows"][:2]):
        return "INVALID"
    cell = row["rows"][1]["cells"].get(workload.measure, {})
    if workload.most_value:
        return "yes" if cell and cell["median"] <= workload.most_value else "no"
    if not workload.most and not workload.least:
        return "-"
    ratio = cell.get("ratio")
    is_kept = ratio is not None and (not workload.most or ratio <= workload.most) and ratio >= workload.least
    return "yes" if is_kept else "no"


def _offline(record: Record) -> str:
    rates = [run.get("publish_rate") or 0.0 for run in record["offline"]]
    faults = "; ".join(reason for run in record["offline"] for reason in run["invalid"])
    shown = ", ".join(f"{rate:,.0f}" for rate in rates)
    return (
        "**Durable QoS 1 to offline sessions** (1 KiB, 256 publishers, both CPUs, load included; every PUBACK after its commit): "
        f"{shown} msg/s; asked: >= {OFFLINE_LEAST:,.0f}; kept: {_offline_verdict(record)}. {faults}"
    )


def _offline_verdict(record: Record) -> str:
    if any(run["invalid"] for run in record["offline"]):
        return "INVALID"
    return (
        "yes"
        if statistics.median(run.get("publish_rate") or 0.0 for run in record["offline"]) >= OFFLINE_LEAST
        else "no"
    )


def _usable(record: Record) -> str:
    lines = [
        "**Usable MPS** (1:1 pairs, 1 KiB, open loop: the largest rate without loss and with p99.9 below 0.5 s), "
        "and p99 of both at half of the smaller one:",
        "",
        "| QoS | Mosquitto msg/s | iothub msg/s | ratio | at msg/s | p99 Mosquitto ms | p99 iothub ms |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, found in record["usable"].items():
        base, hub = found["usable_per_s"]["mosquitto"], found["usable_per_s"]["iothub"]
        p99 = [_median(found["p99_ms_at_half"][broker]) for broker in ("mosquitto", "iothub")]
        ratio = f"{hub / base:.2f}" if base else "-"
        lines.append(f"| {name} | {base:,} | {hub:,} | {ratio} | {found['half_rate_per_s']:,} | {p99[0]} | {p99[1]} |")
    return "\n".join(lines)


def _median(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}" if known else "-"


def _auth(record: Record) -> str:
    what = (
        "**A device's record from each level** (its name is different each time; a server that is not here has no row; servers on this machine, "
        "their CPU is not counted):"
    )
    return f"{what}\n\n{bench_auth.markdown(record['auth_table'])}"


def _streams(record: Record) -> str:
    what = (
        "**A stream into a plain kafka-python consumer against ordinary subscribers of QoS 1** (`mqttload` and paho-mqtt, sessions kept; "
        "everything on this machine, nothing pinned, so Kafka and the application take CPU from the hub; every message is looked for):"
    )
    table = bench_streams.markdown(record["stream_table"]) if record["stream_table"] else "not measured: no Kafka here"
    return f"{what}\n\n{table}"


def _queues(record: Record) -> str:
    lines = [
        "**The queue stores alone** (one thread, 1 KiB, 1,000 queues, each batch durable before the next; HBase: 16 regions, 8 connections, "
        "everything on this machine):",
        "",
        "| driver | what | messages/s | CPU µs/message, this process |",
        "|---|---|--:|--:|",
    ]
    lines += [
        f"| {row['driver']} | {row['what']} | {row['per_s']:,.0f} | {row['cpu_us']:.1f} |"
        for row in record["queue_table"]
    ]
    return "\n".join(lines)
