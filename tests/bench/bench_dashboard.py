"""What the dashboard costs the hub: CPU time of one hub process with nothing beside it, with the REST API, and with two pages open in a browser.

`ONLY=dashboard make bench` is this alone. The hub has no load, so it has the same work whoever looks, and what is added is for the pages: with a load
the figure says nothing, because a browser on the machine changes how messages come in pieces and how deep the CPUs sleep, which moves the cost of
a message by a third in either direction. Each turn measures the three one after the other on the same hub, the next turn the other way round.
A figure is the hub's CPU seconds per second, in % of a core; what the pages cost is "two pages" less "API" within a turn. The hub has CPU 0, all
else CPU 1. Every interval has as many samples of the hub's and its tenants' metrics. Exit code 1: the median is above MOST_PERCENT.
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
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

MOST_PERCENT = 2.0  # of a core
SECONDS = 30.0  # the tenants' metrics are read once in it, the hub's six times
READY_S = 60.0
PAGES = ("/", f"/tenants/{accounts.TENANT}")
BESIDE = ("nothing", "API", "two pages")

Figures = dict[str, float]  # of a turn: the hub's CPU in % of a core, by what is beside it


@contextmanager
def api_served(data_dir: Path) -> Iterator[str]:
    """Serve the REST API of a hub that runs; its address is given."""
    base = f"http://127.0.0.1:{(port := free_port())}"
    log = data_dir.parent / "dashboard.log"
    serve = (accounts.IOTHUB, "--data-dir", str(data_dir), "admin", "serve", "--port", str(port))
    with log.open("wb") as out:
        served = subprocess.Popen(serve, stdout=out, stderr=out)
    try:
        _wait_until_ready(log)
        yield base
    finally:
        served.terminate()
        served.wait(30)


@contextmanager
def pages_open(data_dir: Path) -> Iterator[None]:
    """Serve the dashboard of a hub that runs, and keep its pages open in a browser."""
    with api_served(data_dir) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
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


def _wait_until_ready(log: Path) -> None:
    end = time.monotonic() + READY_S
    while '"event": "ready"' not in log.read_text():
        if time.monotonic() > end:
            sys.exit(f"bench: the dashboard did not start: {log.read_text()[-500:]}")
        time.sleep(0.1)


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(pid: int, seconds: float) -> float:
    """CPU of a process for a while, in % of a core."""
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began)


def turns(count: int, seconds: float) -> tuple[list[Figures], list[str]]:
    """Measure all three so many times; and say what was faulty."""
    folder = Path(tempfile.gettempdir()) / "iothub-bench-accounts" / "few"
    accounts.make(folder, accounts.FEW)
    broker = Broker("hub", brokers.iothub(folder, "http.port={port2}"), bench.options(seconds, 1.0))
    found: list[Figures] = []
    try:
        if broker.start():
            data_dir = Path(broker.folder.name) / "data"
            user = ("admin", "user", "create", "bench", "--role", "platform-admin", "--password-stdin")
            hub = (accounts.IOTHUB, "--data-dir", str(data_dir))
            subprocess.run((*hub, *user), input=PASSWORD, text=True, check=True, capture_output=True)
            for turn in range(count):
                found.append(one_turn(broker.pid, data_dir, seconds, BESIDE if turn % 2 == 0 else BESIDE[::-1]))
                sys.stderr.write(f"turn {turn + 1}: {json.dumps(found[-1])}\n")
    finally:
        problems = broker.problems + broker.stop()
    return found, problems


def one_turn(pid: int, data_dir: Path, seconds: float, order: tuple[str, ...]) -> Figures:
    """Measure the hub with each of BESIDE."""
    beside: dict[str, AbstractContextManager[Any]] = {
        "nothing": nullcontext(),
        "API": api_served(data_dir),
        "two pages": pages_open(data_dir),
    }
    found: Figures = {}
    for name in order:
        with beside[name]:
            found[name] = measured(pid, seconds)
    return found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--turns", type=int, default=5)
    asked.add_argument("--seconds", type=float, default=SECONDS)
    given = asked.parse_args()
    if shutil.which(CHROMIUM) is None:
        sys.exit("bench: Chromium is not installed; run 'apt-get install chromium' and try again")
    os.sched_setaffinity(0, {1})  # of all that is started here but the hub, which gets CPU 0
    found, problems = turns(given.turns, given.seconds)
    results = Path("bench-results")
    results.mkdir(exist_ok=True)
    record = json.dumps({"turns": found, "invalid": problems}, indent=1)
    (results / "dashboard.json").write_text(record, encoding="utf-8")
    if problems:
        sys.stdout.write(f"INVALID: {'; '.join(problems)}\n")
        return 1
    cost = sorted(figures["two pages"] - figures["API"] for figures in found)
    medians = " | ".join(f"{statistics.median(figures[name] for figures in found):.2f}" for name in BESIDE)
    sys.stdout.write(
        "| hub's CPU, % of a core | nothing beside it | REST API | API and two pages | what the pages cost (range) |\n"
        f"|---|--:|--:|--:|--:|\n| no load | {medians} | {statistics.median(cost):.2f} ({cost[0]:.2f} to {cost[-1]:.2f}) |\n"
    )
    return int(statistics.median(cost) > MOST_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
