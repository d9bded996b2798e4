"""What the dashboard costs the hub: its CPU time without a load and of a message under a fixed one, with and without pages open in a browser.

`ONLY=dashboard make bench` is this alone, in less than seven minutes; it wants a quiet machine. The hub has CPU 0, all else CPU 1.
The REST API and the browser run all the time, and the load is one run of the generator: what changes between one window and the next are the open
pages. Windows come in pairs, with and without them, in the order there, back, back, there, so that neither a drift nor the samples of the API,
which come every 5 and every 30 s, fall on one side.
The messages come a thousand at a time. What a message costs is decided by how many come together, so how often the hub wakes up: at 5,000 a second,
each by itself, that varies by half within a run, with whatever runs beside the generator.
API and browser have the lowest priority, so that the generator is not late because of them.
The result is the estimate of Wilcoxon's signed ranks over the pairs, and its interval of 95 % certainty or more; pairs in both orders differ
symmetrically, whatever their distribution.
Exit code 1: an interval begins above MOST_PERCENT, so the pages cost more; or a run was faulty. One that only ends above it shows neither.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations_with_replacement
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "load"), str(HERE.parents[1])]

import accounts  # noqa: E402
import bench  # noqa: E402
import brokers  # noqa: E402
import psutil  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from runs import Broker  # noqa: E402

from tests.support.dashboard import CHROMIUM, PASSWORD  # noqa: E402
from tests.support.ports import free_port  # noqa: E402

MOST_PERCENT = 2.0  # of a core without a load, of a message's cost under one
PAIRS, SECONDS = 20, 5.0  # under a load
IDLE_PAIRS, IDLE_SECONDS = 3, 10.0
OPENED_S = 3.0  # what a page takes to open and close, at most
SETTLED_S = 1.0  # after that
READY_S = 60.0
CERTAINTY = 0.95
PAGES = ("/", f"/tenants/{accounts.TENANT}")
OVERVIEW = PAGES[:1]
RATE = 100_000
LOAD = f"pair -n 50 -s 256 -q 1 --rate {RATE} --burst 1000"
FEWER = 0.02  # of RATE: how much less the hub may have received
RECEIVED = "iothub_messages_received_total"

Window = Callable[[], float]  # measures for a while; returns what the hub's CPU did
Pair = tuple[float, float]  # without the pages, with them


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


class Pages:
    """A browser in which somebody has logged in, with pages that are opened and closed."""

    def __init__(self, browser: Any, base: str) -> None:
        self._base = base
        self._context = browser.new_context()
        self._context.new_page()  # with no page at all the browser would do other things
        form = {"name": "bench", "password": PASSWORD}
        answer = self._context.request.post(f"{base}/login", form=form, headers={"Origin": base}, max_redirects=0)
        assert answer.status == 303, answer.text()

    @contextmanager
    def opened(self, paths: Sequence[str]) -> Iterator[None]:
        opened = []
        for path in paths:
            opened.append(page := self._context.new_page())
            page.goto(self._base + path)
            page.wait_for_function("() => window.socket && window.socket.connected")
        _give_way()
        time.sleep(SETTLED_S)
        yield
        for page in opened:
            page.close()


@contextmanager
def browser_of(base: str) -> Iterator[Pages]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield Pages(browser, base)
        browser.close()


def _give_way() -> None:
    """Let browser and API run when nothing else wants to: each thread of their processes."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if "chrom" in process.name() or "admin" in process.cmdline():
                for thread in process.threads():
                    os.sched_setscheduler(thread.id, os.SCHED_IDLE, os.sched_param(0))


def _wait_until_ready(log: Path) -> None:
    end = time.monotonic() + READY_S
    while '"event": "ready"' not in log.read_text():
        if time.monotonic() > end:
            sys.exit(f"bench: the dashboard did not start: {log.read_text()[-500:]}")
        time.sleep(0.1)


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, in fine steps."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def received(port: int) -> float:
    """How many messages the hub has received."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(RECEIVED))


def percent_of_a_core(pid: int, seconds: float) -> float:
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began)


def us_of_a_message(broker: Broker, seconds: float) -> float:
    """Return what a message costs; the hub is asked for their number outside of what is measured."""
    messages, before = received(broker.port + 1), cpu_s(broker.pid)
    time.sleep(seconds)
    took_s = cpu_s(broker.pid) - before
    messages = received(broker.port + 1) - messages
    if messages < (1 - FEWER) * RATE * seconds:
        broker.problems.append(f"{messages:.0f} messages in {seconds:.0f} s: fewer than {RATE} a second")
    return 1e6 * took_s / max(messages, 1)


def pairs_of(count: int, pages: Pages, paths: Sequence[str], window: Window) -> list[Pair]:
    found: list[Pair] = []
    for number in range(count):
        measured: dict[bool, float] = {}
        for is_open in (False, True) if number % 2 == 0 else (True, False):
            with pages.opened(paths if is_open else ()):
                measured[is_open] = window()
        found.append((measured[False], measured[True]))
        sys.stderr.write(f"pair {number + 1}: {found[-1][0]:.3f} without, {found[-1][1]:.3f} with\n")
    return found


def measured(
    pairs: int, seconds: float, idle_pairs: int, idle_seconds: float
) -> tuple[list[Pair], list[Pair], list[str]]:
    """Measure without a load and with one; and say what was faulty."""
    folder = Path(tempfile.gettempdir()) / "iothub-bench-accounts" / "few"
    accounts.make(folder, accounts.FEW)
    settings = bench.options(pairs * (2 * (seconds + SETTLED_S) + OPENED_S) + OPENED_S, 2.0)
    settings.limit = 2 * settings.seconds + READY_S
    broker = Broker("hub", brokers.iothub(folder, "http.port={port2}"), settings)
    idle: list[Pair] = []
    loaded: list[Pair] = []
    try:
        if broker.start():
            data_dir = Path(broker.folder.name) / "data"
            user = ("admin", "user", "create", "bench", "--role", "platform-admin", "--password-stdin")
            hub = (accounts.IOTHUB, "--data-dir", str(data_dir))
            subprocess.run((*hub, *user), input=PASSWORD, text=True, check=True, capture_output=True)
            with api_served(data_dir) as base, browser_of(base) as pages:
                idle = pairs_of(idle_pairs, pages, PAGES, lambda: percent_of_a_core(broker.pid, idle_seconds))
                with loaded_broker(broker):
                    loaded = pairs_of(pairs, pages, OVERVIEW, lambda: us_of_a_message(broker, seconds))
    finally:
        ending = broker.stop()
    return idle, loaded, broker.problems + ending


@contextmanager
def loaded_broker(broker: Broker) -> Iterator[None]:
    """Load it from the first message on, for as long as the settings say, which is longer than the block."""
    result: dict[str, Any] = {"invalid": ["the load has given no result"]}
    load = Thread(target=lambda: result.update(broker.run(LOAD)))
    load.start()
    end = time.monotonic() + READY_S
    while received(broker.port + 1) < RATE:
        if time.monotonic() > end:
            sys.exit("bench: the load did not begin")
        time.sleep(0.2)
    yield
    is_over = not load.is_alive()
    load.join()
    broker.problems += result["invalid"]
    if is_over:
        broker.problems.append("the load ended before the last pair")


def estimated(values: Sequence[float]) -> tuple[float, float, float]:
    """Return what the values lie around, and the ends of the interval that has it with CERTAINTY or more: Wilcoxon's signed ranks.

    They are drawn from symmetric distributions around it. Six values or more; of fewer it is the whole range, which is less certain.
    """
    means = sorted((one + other) / 2 for one, other in combinations_with_replacement(values, 2))
    signs = [1]  # in how many ways the positive ranks sum up to each number
    for rank in range(1, len(values) + 1):
        without, with_rank = signs + [0] * rank, [0] * rank + signs
        signs = [a + b for a, b in zip(without, with_rank, strict=True)]
    cut = 1
    while 2 * sum(signs[: cut + 1]) <= (1 - CERTAINTY) * 2 ** len(values):
        cut += 1
    return statistics.median(means), means[cut - 1], means[-cut]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--pairs", type=int, default=PAIRS)
    asked.add_argument("--seconds", type=float, default=SECONDS)
    asked.add_argument("--idle-pairs", type=int, default=IDLE_PAIRS)
    asked.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    given = asked.parse_args()
    if shutil.which(CHROMIUM) is None:
        sys.exit("bench: Chromium is not installed; run 'apt-get install chromium' and try again")
    os.sched_setaffinity(0, {1})  # of all that is started here but the hub, which gets CPU 0
    idle, loaded, problems = measured(given.pairs, given.seconds, given.idle_pairs, given.idle_seconds)
    results = Path("bench-results")
    results.mkdir(exist_ok=True)
    record = json.dumps({"idle": idle, "loaded": loaded, "invalid": problems}, indent=1)
    (results / "dashboard.json").write_text(record, encoding="utf-8")
    if problems:
        sys.stdout.write(f"INVALID: {'; '.join(problems)}\n")
        return 1
    return int(report(idle, loaded) > MOST_PERCENT)


def report(idle: Sequence[Pair], loaded: Sequence[Pair]) -> float:
    """Write the table; return what the pages cost at least, in %: where the higher of the two intervals begins."""
    costs = [
        ("no load: % of a core", "two pages", idle, [with_pages - without for without, with_pages in idle]),
        (
            f"{LOAD}: us a message",
            "overview",
            loaded,
            [100 * (with_pages / without - 1) for without, with_pages in loaded],
        ),
    ]
    sys.stdout.write(
        "| hub's CPU | pages | without | with | pairs | % more (95 % interval) |\n|---|---|--:|--:|--:|--:|\n"
    )
    least, most = 0.0, 0.0
    for what, pages, pairs, cost in costs:
        without, with_pages = (statistics.median(values) for values in zip(*pairs, strict=True))
        more, low, high = estimated(cost)
        least, most = max(least, low), max(most, high)
        sys.stdout.write(
            f"| {what} | {pages} | {without:.2f} | {with_pages:.2f} | {len(pairs)} | {more:.2f} ({low:.2f} to {high:.2f}) |\n"
        )
    if most > MOST_PERCENT:
        sys.stdout.write(f"less than {MOST_PERCENT:g} % are not shown: an interval ends at {most:.2f}\n")
    return least


if __name__ == "__main__":
    sys.exit(main())
