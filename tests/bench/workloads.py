"""What `make bench` runs: the table of goals (docs/guide/benchmarks.md), one row each, against which broker, and what is asked of it.

Knows no broker's inside and runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

CPU = "CPU µs/msg"
CPU_CONNECT = "CPU µs/connect"
BYTES = "RSS bytes/connection"
RATE = "msg/s"


@dataclass(frozen=True, slots=True)
class Workload:
    """One row. `measure`: the column that decides, as a ratio to the baseline's: at most `most`, or at least `least` (0: not asked).

    `most_value`: an absolute bound instead. `goal`: what the finished engine is to reach. `is_quick`: also run with QUICK=1.
    """

    name: str
    options: str
    baseline: str
    hub: str
    measure: str = CPU
    most: float = 1.0
    least: float = 0.0
    most_value: float = 0.0
    goal: float | None = 1.0
    is_quick: bool = True


WORKLOADS = (
    Workload("pair QoS 0, 1 KiB, window 20", "pair -n 50 -s 1024 -q 0 -W 20", "mosquitto", "iothub", goal=0.20),
    Workload("pair QoS 1", "pair -n 50 -s 1024 -q 1 -W 20", "mosquitto", "iothub", goal=0.16),
    Workload("window 1 (un-pipelined)", "pair -n 50 -s 1024 -q 0 -W 1 --batch 1", "mosquitto", "iothub", goal=0.85),
    Workload("1,000 pairs QoS 1", "pair -n 1000 -s 256 -q 1 -W 20", "mosquitto", "iothub", goal=0.20),
    Workload("fan-out 1 -> 1,000", "fanout -n 1000 -s 256 -q 0 -W 20", "mosquitto", "iothub", goal=0.10),
    Workload("fan-in 1,000 -> 1", "fanin -n 1000 -s 256 -q 0 -W 4", "mosquitto", "iothub", goal=0.35),
    Workload("connect + disconnect", "storm -n 50", "mosquitto-few", "iothub-few", CPU_CONNECT),
    Workload(
        "connect + disconnect, 5.0", "storm -n 50 --v5", "mosquitto-few", "iothub-few", CPU_CONNECT, is_quick=False
    ),
    Workload(
        "connect + disconnect, chosen passwords",
        "storm -n 50 -w 5",
        "mosquitto-few-chosen",
        "iothub-few-chosen",
        CPU_CONNECT,
        is_quick=False,
    ),
    Workload(
        "idle connection, bytes",
        "conn -n 5000 -k 300 --src-ips 4",
        "mosquitto",
        "iothub",
        BYTES,
        most=0.0,
        most_value=2048,
        goal=None,
    ),
    Workload(
        "WebSocket, pipelined", "pair -n 50 -s 1024 -q 1 -W 20", "mosquitto-ws", "iothub-ws", goal=0.35, is_quick=False
    ),
    Workload("TLS, pipelined", "pair -n 50 -s 1024 -q 1 -W 20", "mosquitto-tls", "iothub-tls", goal=0.40),
    Workload(
        "persistent QoS 1, subscriber online (Mosquitto: in memory)",
        "pair -n 50 -s 1024 -q 1 -W 20 --no-clean",
        "mosquitto",
        "iothub",
        most=0.0,  # durable against not durable: shown, not asked
        goal=None,
    ),
    Workload(
        "plain twin against compiled, pair QoS 1",
        "pair -n 50 -s 1024 -q 1 -W 20",
        "iothub",
        "iothub-plain",
        most=0.0,
        least=5.0,
        goal=None,
    ),
    *(
        Workload(
            f"2 workers against one hub, {name}",
            options,
            "iothub",
            "iothub-workers",
            most=1.8,  # half of the pairs are across workers
            goal=1.25,
            is_quick=False,
        )
        for name, options in (
            ("pair QoS 0", "pair -n 50 -s 256 -q 0 -W 20"),
            ("pair QoS 1", "pair -n 50 -s 256 -q 1 -W 20"),
        )
    ),
    Workload(
        "2 workers, idle connection, bytes",
        "conn -n 5000 -k 300 --src-ips 4",
        "iothub",
        "iothub-workers",
        BYTES,
        most=0.0,
        goal=None,
        is_quick=False,
    ),
)

OFFLINE = "offline -n 256 --messages {messages} --pubs 256 -s 1024 -q 1"
OFFLINE_LEAST = 10_000.0  # messages/s, durable, on two cores including the load
