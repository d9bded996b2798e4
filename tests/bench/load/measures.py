"""What is measured: the workloads, and the columns of each kind of workload.

Knows no broker and runs nothing.
"""

from __future__ import annotations

import re

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
        ("CPU µs/stored msg", "broker.store_us_per_msg", 1, "{:.2f}", True),
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


def kind(spec: str) -> str:
    mode = spec.split()[0]
    if mode in COLUMNS:
        return mode
    return "open loop" if re.search(r"\s--(pub-)?rate\b", spec) else "closed loop"


def dig(data: dict, path: str) -> float | None:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def main_value(spec: str, result: dict) -> float | None:
    return dig(result, COLUMNS[kind(spec)][0][1])
