"""What the dashboard costs the hub: its CPU time without a load and of a message under a fixed one, with and without pages open in a browser.

`ONLY=dashboard make bench` is this alone; it wants a quiet machine. The hub has CPU 0, all else CPU 1. The turns go there and back.
Without a load, the hub has the same work whoever looks, and every interval has as many samples of the hub's and its tenants' metrics: what two pages
cost is "two pages" less "API" within a turn, in % of a core.
With a load, what a message costs while the overview is open is compared with what it costs just before or after beside the API alone. The browser
changes how messages come in pieces and how deep the CPUs sleep, so a pair may differ by far more than the page costs: look at the range.
Exit code 1: the median of either is above MOST_PERCENT.
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
from collections.abc import Iterator, Sequence
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
OVERVIEW = PAGES[:1]
BESIDE = ("nothing", "API", "two pages")
LOAD = "pair -n 50 -s 256 -q 1 --rate 5000"
API, OPEN = "API", "overview open"  # what is beside the hub under load

Figures = dict[str, float]  # of a turn, by what is beside the hub: its CPU in % of a core, or in us of a message


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
def pages_open(data_dir: Path, paths: Sequence[str] = PAGES) -> Iterator[None]:
    """Serve the dashboard of a hub that runs, and keep pages of it open in a browser."""
    with api_served(data_dir) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        context = browser.new_context()
        form = {"name": "bench", "password": PASSWORD}
        answer = context.request.post(f"{base}/login", form=form, headers={"Origin": base}, max_redirects=0)
        assert answer.status == 303, answer.text()
        for path in paths:
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


def turns(count: int, seconds: float) -> tuple[list[Figures], list[Figures], list[str]]:
    """Measure all so many times, without a load and with one; and say what was faulty."""
    folder = Path(tempfile.gettempdir()) / "iothub-bench-accounts" / "few"
    accounts.make(folder, accounts.FEW)
    broker = Broker("hub", brokers.iothub(folder, "http.port={port2}"), bench.options(seconds, 1.0))
    idle: list[Figures] = []
    loaded: list[Figures] = []
    problems: list[str] = []
    try:
        if broker.start():
            data_dir = Path(broker.folder.name) / "data"
            user = ("admin", "user", "create", "bench", "--role", "platform-admin", "--password-stdin")
            hub = (accounts.IOTHUB, "--data-dir", str(data_dir))
            subprocess.run((*hub, *user), input=PASSWORD, text=True, check=True, capture_output=True)
            for turn in range(count):
                step = 1 if turn % 2 == 0 else -1
                idle.append(one_turn(broker.pid, data_dir, seconds, BESIDE[::step]))
                loaded.append(one_pair(broker, data_dir, (API, OPEN)[::step], problems))
                sys.stderr.write(f"turn {turn + 1}: {json.dumps([idle[-1], loaded[-1]])}\n")
    finally:
        problems += broker.problems + broker.stop()
    return idle, loaded, problems


def one_pair(broker: Broker, data_dir: Path, order: Sequence[str], problems: list[str]) -> Figures:
    """Return the us of CPU that a message costs the hub beside the API, and while the overview is open; what was faulty goes to `problems`."""
    found: Figures = {}
    for name in order:
        with api_served(data_dir) if name == API else pages_open(data_dir, OVERVIEW):
            result = broker.run(LOAD)
        problems += [f"under load, {name}: {each}" for each in result["invalid"]]
        found[name] = result["broker"]["us_per_msg"]
    return found


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
    idle, loaded, problems = turns(given.turns, given.seconds)
    results = Path("bench-results")
    results.mkdir(exist_ok=True)
    record = json.dumps({"turns": idle, "loaded": loaded, "invalid": problems}, indent=1)
    (results / "dashboard.json").write_text(record, encoding="utf-8")
    if problems:
        sys.stdout.write(f"INVALID: {'; '.join(problems)}\n")
        return 1
    return int(report(idle, loaded) > MOST_PERCENT)


def report(idle: list[Figures], loaded: list[Figures]) -> float:
    """Write both tables; return the larger median of what the pages cost, in %."""
    cost = sorted(figures["two pages"] - figures["API"] for figures in idle)
    medians = " | ".join(f"{statistics.median(figures[name] for figures in idle):.2f}" for name in BESIDE)
    sys.stdout.write(
        "| hub's CPU, % of a core | nothing beside it | REST API | API and two pages | what the pages cost (range) |\n"
        f"|---|--:|--:|--:|--:|\n| no load | {medians} | {statistics.median(cost):.2f} ({cost[0]:.2f} to {cost[-1]:.2f}) |\n\n"
    )
    more = sorted(100 * (figures[OPEN] / figures[API] - 1) for figures in loaded)
    medians = " | ".join(f"{statistics.median(figures[name] for figures in loaded):.2f}" for name in (API, OPEN))
    sys.stdout.write(
        f"| hub's CPU, us a message | REST API | {OPEN} | % more within a pair (range) |\n"
        f"|---|--:|--:|--:|\n| {LOAD} | {medians} | {statistics.median(more):.1f} ({more[0]:.1f} to {more[-1]:.1f}) |\n"
    )
    return max(statistics.median(cost), statistics.median(more))


if __name__ == "__main__":
    sys.exit(main())
