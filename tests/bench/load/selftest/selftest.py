#!/usr/bin/env python3
"""Prove that compare.py accepts a correct broker and marks every faulty one INVALID.

selftest.py [FAULT ...]        about three seconds per case; exit status 0 if all behave as expected
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
Q0, Q1 = "pair -n 5 -q 0 -W 10 --drain 0.7 --phase-timeout 8", "pair -n 5 -q 1 -W 10 --drain 0.7 --phase-timeout 8"
FAN = "fanout -n 20 -q 0 -W 5 --drain 0.7 --phase-timeout 8"
# fault, N, workload, what the reason must contain (None: the run must be valid)
CASES = [
    ("none", 1000, Q0, None),
    ("none", 1000, Q1, None),
    ("none", 1000, FAN, None),
    ("none", 1000, "fanin -n 20 -q 1 -W 2", None),
    ("none", 1000, "conn -n 50", None),
    ("none", 1000, "storm -n 5", None),
    ("none", 1000, "publish -n 20 -q 1 -W 5", None),
    ("none", 1000, "pair -n 5 -q 1 --rate 200", None),
    ("none", 1000, "pair -n 5 -q 1 --rate 200 --burst 20", None),
    ("drop", 1000, Q0, "lost"),
    ("drop", 1000, Q1, "lost"),
    ("drop", 1000, FAN, "lost"),
    ("duplicate", 1000, Q0, "duplicated"),
    ("duplicate", 1000, Q1, "duplicated"),
    ("redeliver", 1000, Q1, None),
    ("redeliver", 1000, Q0, "duplicated"),
    ("reorder", 1000, Q0, "out_of_order"),
    ("reorder", 1000, Q1, "out_of_order"),
    ("corrupt", 1000, Q0, "corrupt"),
    ("misroute", 1000, Q0, "misrouted"),
    ("downgrade", 1000, Q1, "wrong_qos"),
    ("topic", 1000, Q0, "wrong_topic"),
    ("retain", 1000, Q0, "wrong_flags"),
    ("dup-flag", 1000, Q0, "wrong_flags"),
    ("foreign", 1000, Q0, "foreign"),
    ("no-ack", 1000, Q1, "unacknowledged"),
    ("no-ack", 1000, Q1.replace("pair", "publish"), "unacknowledged"),
    ("ack-order", 1000, Q1, "acks_out_of_order"),
    ("truncate-subscriptions", 1, Q1, "subscribe_refused"),
    ("die", 2000, Q0, "died"),
    ("die", 2000, Q1, "died"),
    ("segfault", 2000, Q0, "SIGSEGV"),
    ("segfault", 20, "pair -n 5 -q 1 --rate 50", "SIGSEGV"),
    ("disconnect", 2000, Q0, "connection_broken"),
    ("hang", 2000, Q1, "unacknowledged"),
    ("traceback", 2000, Q0, "its log says"),
    ("child", 2000, Q0, "processes died"),
    ("not-listening", 1, Q0, "not ready"),
]


def case(fault: str, n: int, workload: str) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        toml = pathlib.Path(folder) / "b.toml"
        toml.write_text(
            f'[faulty]\nstart = "{sys.executable} {HERE}/faulty.py {{port}} {fault} {n}"\nready_seconds = 4\n'
        )
        out = pathlib.Path(folder) / "out.json"
        done = subprocess.run(
            [
                sys.executable,
                HERE.parent / "compare.py",
                "faulty",
                "--brokers",
                toml,
                "--workloads",
                "",
                "--workload",
                f"case={workload}",
                "--reps",
                "1",
                "--seconds",
                "1",
                "--warmup",
                "0.2",
                "--json",
                out,
            ],
            capture_output=True,
            text=True,
        )
        if not out.exists():
            return done.returncode, [done.stderr[-500:]]
        return done.returncode, json.loads(out.read_text())["workloads"]["case"]["rows"][0]["invalid"]


def main() -> int:
    wrong = 0
    for fault, n, workload, expected in CASES:
        if sys.argv[1:] and fault not in sys.argv[1:]:
            continue
        code, reasons = case(fault, n, workload)
        said = "; ".join(reasons)
        good = (code == 0 and not reasons) if expected is None else (code == 1 and expected in said)
        wrong += not good
        print(
            f"{'ok ' if good else 'BAD'} {fault:22s} {workload.split(' --drain')[0]:28s} -> {said or 'valid'}",
            flush=True,
        )
    print(f"{wrong} wrong" if wrong else "all as expected")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
