"""What a call of the REST API takes beside a hub under load: p50, p95 and p99 of each kind of path.

`ONLY=api make bench` is this alone; a nightly test runs it, too. The load is 50 pairs at QoS 1, evenly spaced, as many messages as keep the hub busy
for half of the time, by what a message has cost just before. The hub has CPU 0 and the load generator CPU 1; the API, and the one caller, have what
those two leave of both.
The accounts are those of a large installation: 1,000 tenants, 5,000 devices of the one that has the load.
Exit code 1: p95 of a path is above MOST_MS, or the load was invalid.
Not asked is what takes its time on purpose, or as long as its file is: logins (argon2), `/doctor`, jobs, exports and imports.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "load"), str(HERE.parents[1])]

import accounts  # noqa: E402
import bench  # noqa: E402
import brokers  # noqa: E402
from bench_dashboard import api_served  # noqa: E402
from paho.mqtt import client as paho  # noqa: E402
from paho.mqtt.packettypes import PacketTypes  # noqa: E402
from paho.mqtt.properties import Properties  # noqa: E402
from runs import Broker  # noqa: E402
from sqlalchemy import event  # noqa: E402

from iothub_tenants.accounts import tenants  # noqa: E402
from iothub_tenants.accounts.database import sqlite_url  # noqa: E402
from iothub_tenants.accounts.store import AccountStore  # noqa: E402

MOST_MS = 50.0
SECONDS = 60.0
PAUSE_S = 0.005  # between two calls
WARM_UP = 2  # first calls of each path, which load modules: not counted
TENANTS, DEVICES, AWAY, RETAINED = 1_000, 5_000, 20, 200
LOAD = "pair -n 50 -s 256 -q 1"
FIRST_RATE = 5_000  # messages/s, to see what one costs
HALF = 0.5  # of a core of the hub's process
T = f"/tenants/{accounts.TENANT}"
ONE, PAGE, HUB, FIGURES, CHANGE = "one object", "a page of a list", "asked of the hub", "figures", "a change"

Body = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Call:
    """One path, asked again and again. `{n}` in it, and the argument of `body`, is the number of the round."""

    kind: str
    path: str
    method: str = "GET"
    body: Body | None = None


CALLS = (
    *(
        Call(ONE, path)
        for path in (
            "/whoami",
            T,
            f"{T}/devices/dev7",
            f"{T}/quotas",
            f"{T}/quotas:effective",
            f"{T}/devices/dev7/quotas:effective",
            f"{T}/acl:test?device=dev7&action=publish&topic=a/b",
            "/plans/standard",
        )
    ),
    *(
        Call(PAGE, path)
        for path in (
            "/tenants?limit=100",
            "/tenants?prefix=more05&limit=100",
            f"{T}/devices?limit=100",
            f"{T}/groups",
            f"{T}/acl-rules",
            f"{T}/bans",
            f"{T}/token-issuers",
            f"{T}/webhooks",
            f"{T}/quotas:all",
            f"{T}/audit?limit=100",
            "/audit?limit=100",
            "/api-keys",
            "/users",
            "/plans",
            "/jobs",
            "/runs",
        )
    ),
    *(
        Call(HUB, path)
        for path in (
            f"{T}/clients?limit=100",
            f"{T}/clients:top",
            f"{T}/sessions?limit=100",
            f"{T}/sessions/away-1",
            f"{T}/subscriptions?limit=100",
            f"{T}/share-groups",
            f"{T}/queues?limit=100",
            f"{T}/queued-messages/away-1?limit=100",
            f"{T}/retained?limit=100",
            f"{T}/rejected",
            f"{T}/traces",
            "/rejected",
            "/alarms",
            "/nodes",
        )
    ),
    Call(HUB, f"{T}/explain:connect", "POST", lambda _round: {"device": "dev7", "client_id": "away-1"}),
    Call(HUB, f"{T}/explain:publish", "POST", lambda _round: {"device": "dev7", "client_id": "c", "topic": "a/b"}),
    *(
        Call(FIGURES, path)
        for path in (
            "/status",
            "/metrics",
            "/metrics/tenants?limit=100",
            f"{T}/metrics",
            f"{T}/usage",
            "/events/lag",
            "/config",
            "/features",
        )
    ),
    Call(CHANGE, f"{T}/devices", "POST", lambda number: {"name": f"made-{number}"}),
    Call(CHANGE, f"{T}/devices/made-{{n}}:disable", "POST"),
    Call(CHANGE, f"{T}/devices/made-{{n}}", "DELETE"),
    Call(CHANGE, T, "PATCH", lambda number: {"display_name": f"Number {number}"}),
    Call(CHANGE, f"{T}/quotas", "PATCH", lambda number: {"limits": {"retained_messages": 10_000 + number}}),
    Call(CHANGE, f"{T}/messages", "POST", lambda number: {"topic": "asked", "payload": str(number), "qos": 1}),
)


def make_accounts(data_dir: Path) -> None:
    accounts.make_hub(data_dir, [f"dev{number}" for number in range(DEVICES)])
    with closing(AccountStore(sqlite_url(data_dir / "accounts.db"))) as store:
        event.listen(store.engine, "connect", lambda connection, _entry: connection.execute("PRAGMA synchronous = OFF"))
        for number in range(TENANTS):
            tenants.create(store, f"more{number:04}", plan="standard")


def leave_sessions(port: int) -> None:
    """Let clients subscribe and go: their sessions and queues stay."""
    for number in range(AWAY):
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, f"away-{number}", protocol=paho.MQTTv5)
        client.username_pw_set(f"{accounts.TENANT}/dev{DEVICES - 1 - number}", accounts.SECRET)
        stays = Properties(PacketTypes.CONNECT)
        stays.SessionExpiryInterval = 3600
        subscribed: list[object] = []
        client.on_subscribe = lambda *_answer, found=subscribed: found.append(1)
        client.on_connect = lambda asking, *_answer: asking.subscribe("kept/#", 1)
        client.connect("127.0.0.1", port, properties=stays)
        while not subscribed:
            if client.loop(1.0) != paho.MQTT_ERR_SUCCESS:
                sys.exit(f"bench: client away-{number} was refused")
        client.disconnect()


class Caller:
    """Asks the API, one call after the other on one connection."""

    def __init__(self, base: str, key: str) -> None:
        self._connection = HTTPConnection(urlsplit(base).netloc, timeout=30)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def took_s(self, call: Call, number: int = 0) -> float:
        """Make a call to its end. A refusal ends the bench: it would be measured as something else."""
        path = "/api/v1" + call.path.replace("{n}", str(number))
        content = None if call.body is None else json.dumps(call.body(number))
        began = time.perf_counter()
        self._connection.request(call.method, path, content, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - began
        if answer.status >= 300:
            sys.exit(f"bench: {call.method} {path} -> {answer.status}: {text[:500].decode()}")
        return took

    def ask_until(self, is_over: Callable[[], bool]) -> dict[Call, list[float]]:
        """Ask all of CALLS again and again; return the milliseconds of each."""
        found: dict[Call, list[float]] = {call: [] for call in CALLS}
        number = 0
        while not is_over():
            for call in CALLS:
                found[call].append(1000 * self.took_s(call, number))
                time.sleep(PAUSE_S)
            number += 1
        return {call: each[WARM_UP:] for call, each in found.items()}


def half_of_its_load(broker: Broker) -> tuple[int, list[str]]:
    """Return how many messages a second keep the hub busy for half of the time, and what was faulty. The more there are, the less one costs."""
    rate = FIRST_RATE
    for _ in range(3):
        found = broker.run(f"{LOAD} --rate {rate}")
        if found["invalid"]:
            return 0, [f"at {rate} messages/s: {each}" for each in found["invalid"]]
        rate = round(HALF * 1e6 / found["broker"]["us_per_msg"])
    return rate, []


def measured(broker: Broker, seconds: float) -> tuple[dict[Call, list[float]], dict[str, object], list[str]]:
    """Ask while the hub has half of its load; return the times, what the load was, and what was faulty."""
    rate, problems = half_of_its_load(broker)
    if problems:
        return {}, {}, problems
    data_dir = Path(broker.folder.name) / "data"
    made = (accounts.IOTHUB, "--data-dir", str(data_dir), "admin", "key", "create", "bench", "--role", "platform-admin")
    key = json.loads(subprocess.run((*made, "-o", "json"), check=True, capture_output=True).stdout)["key"]
    leave_sessions(broker.port)
    with api_served(data_dir) as base, ThreadPoolExecutor(1) as beside:
        caller = Caller(base, key)
        for number in range(RETAINED):
            body = {"topic": f"kept/{number}", "payload": "x" * 100, "qos": 1, "retain": True}
            caller.took_s(Call(CHANGE, f"{T}/messages", "POST", lambda _n, body=body: body))
        trace = {"kind": "client", "value": "away-1", "for_s": 3600}
        caller.took_s(Call(CHANGE, f"{T}/traces", "POST", lambda _n: trace))
        broker.o.seconds = seconds
        load: Future[dict[str, object]] = beside.submit(broker.run, f"{LOAD} --rate {rate}")
        time.sleep(broker.o.warmup + 0.5)
        times = caller.ask_until(load.done)
    result = load.result()
    figures = {"rate": rate, "core": rate * result["broker"]["us_per_msg"] / 1e6, "latency_ms": result["latency_ms"]}
    return times, figures, [f"at {rate} messages/s, beside the API: {each}" for each in result["invalid"]]


def p(times: list[float], percent: int) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


def table(times: dict[Call, list[float]]) -> str:
    lines = [
        "| kind of path | paths | calls | p50 ms | p95 ms | p99 ms | slowest path, its p95 ms |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for kind in (ONE, PAGE, HUB, FIGURES, CHANGE):
        of_kind = {call: each for call, each in times.items() if call.kind == kind}
        together = [each for found in of_kind.values() for each in found]
        slowest = max(of_kind, key=lambda call: p(of_kind[call], 95))
        figures = " | ".join(f"{p(together, percent):.1f}" for percent in (50, 95, 99))
        worst = f"`{slowest.method} {slowest.path}`, {p(of_kind[slowest], 95):.1f}"
        lines.append(f"| {kind} | {len(of_kind)} | {len(together)} | {figures} | {worst} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=SECONDS)
    given = asked.parse_args()
    results = Path("bench-results")
    results.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="iothub-bench-api-") as folder:
        make_accounts(Path(folder) / "hub")
        broker = Broker("hub", brokers.iothub(Path(folder), "http.port={port2}"), bench.options(3.0, 1.0))
        times: dict[Call, list[float]] = {}
        load: dict[str, object] = {}
        problems: list[str] = []
        try:
            if broker.start():
                times, load, problems = measured(broker, given.seconds)
        finally:
            problems += broker.problems + broker.stop()
    paths = {
        f"{call.method} {call.path}": {f"p{at}": p(each, at) for at in (50, 95, 99)} for call, each in times.items()
    }
    record = json.dumps({"load": load, "paths": paths, "invalid": problems, "cpus": os.cpu_count()}, indent=1)
    (results / "api.json").write_text(record, encoding="utf-8")
    if problems:
        sys.stdout.write(f"INVALID: {'; '.join(problems)}\n")
        return 1
    sys.stdout.write(f"beside {load['rate']:,} messages/s ({load['core']:.0%} of the hub's core):\n\n{table(times)}")
    slow = [f"{name}: {each['p95']:.1f} ms" for name, each in paths.items() if each["p95"] > MOST_MS]
    if slow:
        sys.stdout.write(f"\np95 above {MOST_MS:.0f} ms: {'; '.join(slow)}\n")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
