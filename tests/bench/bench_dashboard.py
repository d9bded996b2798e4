"""What a browser that shows the dashboard costs the hub: the same load with nobody looking and with two pages open, in turns.

`ONLY=dashboard make bench` is this alone. The hub has CPU 0; load, the REST API's process and the browser share CPU 1, so what counts is the
hub's own CPU time for a message; beside a browser the load sends a little less, in smaller pieces, which costs the hub more. A ratio is taken
within a turn. Exit code 1: the median ratio is above MOST, or a run was faulty.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "load"), str(HERE.parents[1])]

import accounts  # noqa: E402
import bench  # noqa: E402
import brokers  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from runs import Broker  # noqa: E402

from tests.support.dashboard import CHROMIUM, PASSWORD  # noqa: E402
from tests.support.ports import free_port  # noqa: E402

MOST = 1.02
WORKLOAD = "pair -n 50 -s 1024 -q 1 -W 20"
SECONDS = 15.0  # three samples of the hub's metrics, and some of its tenants'
READY_S = 60.0
PAGES = ("/", f"/tenants/{accounts.TENANT}")

Run = dict[str, Any]


@contextmanager
def looked_at(data_dir: Path) -> Iterator[None]:
    """Serve the dashboard of a hub that runs, and keep its pages open in a browser."""
    hub = (accounts.IOTHUB, "--data-dir", str(data_dir))
    user = (*hub, "admin", "user", "create", "bench", "--role", "platform-admin", "--password-stdin")
    subprocess.run(user, input=PASSWORD, text=True, check=True, capture_output=True)
    base = f"http://127.0.0.1:{(port := free_port())}"
    log = data_dir.parent / "dashboard.log"
    with log.open("wb") as out:
        served = subprocess.Popen([*hub, "admin", "serve", "--port", str(port)], stdout=out, stderr=out)
    try:
        _wait_until_ready(log)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            context = browser.new_context()
            form = {"name": "bench", "password": PASSWORD}
            answer = context.request.post(f"{base}/login", form=form, headers={"Origin": base}, max_redirects=0)
            assert answer.status == 303, answer.text()
            for path in PAGES:
                page = context.new_page()
                page.goto(base + path)
                page.wait_for_function("() => window.socket && window.socket.connected")
            yield
            browser.close()
    finally:
        served.terminate()
        served.wait(30)


def _wait_until_ready(log: Path) -> None:
    end = time.monotonic() + READY_S
    while '"event": "ready"' not in log.read_text():
        if time.monotonic() > end:
            sys.exit(f"bench: the dashboard did not start: {log.read_text()[-500:]}")
        time.sleep(0.1)


def one_run(spec: Run, options: argparse.Namespace, *, is_open: bool) -> Run:
    """Run the load once on a hub of its own."""
    broker = Broker("open" if is_open else "closed", spec, options)
    run: Run = {"invalid": []}
    try:
        if broker.start():
            if is_open:
                with looked_at(Path(broker.folder.name) / "data"):
                    run = broker.run(WORKLOAD)
            else:
                run = broker.run(WORKLOAD)
        run["invalid"] = broker.problems + run["invalid"]
    finally:
        run["invalid"] += broker.stop()
    return run


def turns(count: int, seconds: float) -> list[dict[str, Run]]:
    """Let the two take turns (A B, B A, ...)."""
    folder = Path(tempfile.gettempdir()) / "iothub-bench-accounts" / "few"
    accounts.make(folder, accounts.FEW)
    spec = brokers.iothub(folder, "http.port={port2}")
    options = bench.options(seconds, 1.0)
    found = []
    for turn in range(count):
        kinds = (False, True) if turn % 2 == 0 else (True, False)
        runs = {is_open: one_run(spec, options, is_open=is_open) for is_open in kinds}
        found.append({"closed": runs[False], "open": runs[True]})
        sys.stderr.write(f"turn {turn + 1}: {json.dumps({name: _cost(run) for name, run in found[-1].items()})}\n")
    return found


def _cost(run: Run) -> float | str:
    return "; ".join(run["invalid"]) if run["invalid"] else float(run["broker"]["us_per_msg"])


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--turns", type=int, default=5)
    asked.add_argument("--seconds", type=float, default=SECONDS)
    given = asked.parse_args()
    if shutil.which(CHROMIUM) is None:
        sys.exit("bench: Chromium is not installed; run 'apt-get install chromium' and try again")
    os.sched_setaffinity(0, {1})  # of all that is started here but the hub, which gets CPU 0
    found = turns(given.turns, given.seconds)
    results = Path("bench-results")
    results.mkdir(exist_ok=True)
    (results / "dashboard.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    if any(run["invalid"] for turn in found for run in turn.values()):
        sys.stdout.write("INVALID: the lines above say why\n")
        return 1
    costs = [(turn["closed"]["broker"]["us_per_msg"], turn["open"]["broker"]["us_per_msg"]) for turn in found]
    ratios = sorted(shown / closed for closed, shown in costs)
    median = statistics.median(ratios)
    sys.stdout.write(
        "| CPU µs/msg of the hub | no dashboard | two pages open | ratio (range) |\n|---|--:|--:|--:|\n"
        f"| pair QoS 1, 1 KiB | {statistics.median(closed for closed, _ in costs):.2f} | "
        f"{statistics.median(shown for _, shown in costs):.2f} | {median:.3f} ({ratios[0]:.3f}-{ratios[-1]:.3f}) |\n"
    )
    return int(median > MOST)


if __name__ == "__main__":
    sys.exit(main())
