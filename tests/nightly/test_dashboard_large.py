"""The dashboard with 1,000 tenants and 100,000 devices: a page costs what it costs with ten.

`IOTHUB_REPORT=FILE` writes the times of each page, and the CPU time of the process that serves it, which other load disturbs less.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import event

from iothub_tenants.accounts import imports, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.dashboard import PASSWORD, Dashboard, dashboard
from tests.support.hubs.datadirs import fresh_hub
from tests.support.ports import free_port

TENANTS = 1_000
DEVICES = 100  # of each
ROUNDS = 20
P95_S = 0.3
PAUSE_S = (
    0.1  # more pages in a second than people open would only measure how long Python looks through them for garbage
)
T = "/tenants/t0500"
PAGES = (
    "/",
    "/tenants",
    "/tenants?prefix=t0",
    "/plans",
    "/alarms",
    "/nodes",
    "/jobs",
    "/webhooks",
    "/audit",
    "/settings",
    "/keys",
    "/users",
    "/account",
    "/session-log",
    "/rejected",
    T,
    f"{T}/devices",
    f"{T}/devices/d050",
    f"{T}/clients",
    f"{T}/sessions",
    f"{T}/subscriptions",
    f"{T}/share-groups",
    f"{T}/queues",
    f"{T}/retained",
    f"{T}/rejected",
    f"{T}/explain?device=d050",
    f"{T}/traces",
    f"{T}/mqtt",
    f"{T}/groups",
    f"{T}/rules",
    f"{T}/bans",
    f"{T}/token-issuers",
    f"{T}/quotas",
    f"{T}/streams",
    f"{T}/webhooks",
    f"{T}/usage",
    f"{T}/audit",
)  # but /doctor, which asks every server and may take 20 s


def fill(data_dir: Path) -> None:
    pepper = (data_dir / "pepper").read_bytes() if (data_dir / "pepper").exists() else b"p" * 32
    with closing(AccountStore(sqlite_url(data_dir / "accounts.db"), pepper=pepper)) as store:
        event.listen(store.engine, "connect", lambda connection, _entry: connection.execute("PRAGMA synchronous = OFF"))
        lines = ["name,password\n", *(f"d{number:03},\n" for number in range(DEVICES))]
        for number in range(TENANTS):
            name = f"t{number:04}"
            tenants.create(store, name, plan="unlimited")
            imports.import_devices(store, name, lines, keep=lambda _made: None)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    hub = fresh_hub(tmp_path_factory.mktemp("large"), admin__enabled="off")
    fill(hub.data_dir)
    hub.ports["http"] = free_port()
    hub.start()
    with dashboard(hub) as found:
        yield found
    hub.finish()


def test_95_of_100_pages_are_there_within_300_ms(served: Dashboard) -> None:
    """From the request to the whole page, a few a second: the machine does nothing else."""
    served("POST", "/users", {"name": "large", "role": "platform-admin", "password": PASSWORD})
    process = psutil.Process(served.pid)
    took: dict[str, list[float]] = {}
    cpu_s: dict[str, float] = {}
    with httpx.Client(base_url=served.base, trust_env=False, timeout=30) as browser:
        assert browser.post("/login", data={"name": "large", "password": PASSWORD}).status_code == 303
        for path in PAGES:
            assert browser.get(path).status_code == 200, path  # the first one loads modules
        for path in PAGES:
            before = process.cpu_times()
            took[path] = [_seconds(browser, path) for _ in range(ROUNDS)]
            after = process.cpu_times()
            cpu_s[path] = (after.user + after.system - before.user - before.system) / ROUNDS
    p95 = {path: statistics.quantiles(each, n=20, method="inclusive")[-1] for path, each in took.items()}
    if report := os.environ.get("IOTHUB_REPORT"):
        median = {path: statistics.median(each) for path, each in took.items()}
        Path(report).write_text(json.dumps({"p95": p95, "median": median, "cpu_s": cpu_s}, indent=1))
    assert {path: round(each, 3) for path, each in p95.items() if each > P95_S} == {}


def _seconds(browser: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    assert browser.get(path).status_code == 200, path
    took = time.perf_counter() - began
    time.sleep(PAUSE_S)
    return took


def test_browser_shows_the_first_page_of_a_thousand_tenants(served: Dashboard) -> None:
    page = served.as_("platform-admin", "/tenants")

    assert page.locator("tbody tr").count() == 50
    assert served.watched.found == []
    page.close()
