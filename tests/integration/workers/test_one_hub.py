"""Two workers are one hub to whoever looks and to whoever is limited."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import cast

import pytest

from tests.integration.workers.conftest import start, workers_of
from tests.support.hubs.hub import Hub
from tests.support.hubs.workers import FIRST, SECOND, Workers
from tests.support.waiting import PATIENCE_S, until

LIMIT = 5
QUOTA_EXCEEDED = 0x97


def page(workers: Workers, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{workers.hub.ports['http']}{path}", timeout=PATIENCE_S) as answer:
        assert answer.status == HTTPStatus.OK
        return cast("bytes", answer.read()).decode()


def figure(text: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert found is not None, series
    return float(found[1])


def up(workers: Workers) -> bool:
    return figure(page(workers), "iothub_quota_ledger_up") == 1


def test_limit_holds_over_both_workers(make_hub: Callable[[], Hub]) -> None:
    """Exactly, wherever the clients come; and again after the store process, which has the ledger, was killed."""
    hub = make_hub()
    hub.run("quota", "set", "acme", f"connections={LIMIT}")
    start(hub)
    with workers_of(hub) as own:
        join = own._join
        codes = [join.ask().connack.code for _ in range(LIMIT + 5)]
        assert codes == [0] * LIMIT + [QUOTA_EXCEEDED] * 5
        assert figure(page(own, "/metrics/tenants"), 'iothub_tenant_connections{tenant="acme"}') == LIMIT
        os.kill(own.store_pid(), signal.SIGKILL)
        until(lambda: not up(own), "an outage")
        until(lambda: up(own), "the ledger")

        assert [join.ask().connack.code for _ in range(6)] == [QUOTA_EXCEEDED] * 6


@pytest.mark.parametrize("hurt", [signal.SIGSTOP, signal.SIGKILL])
def test_page_goes_on_without_a_worker(own: Workers, hurt: signal.Signals) -> None:
    """One that hangs is passed, one that was killed is back: no counter falls."""
    clients = [own.join(worker) for worker in (FIRST, SECOND)]
    for client in clients:
        client.publish("t", b"x", 1, 1)
    before = page(own)
    messages = 'iothub_messages_received_total{qos="1"}'
    assert figure(before, messages) == 2
    assert figure(before, 'iothub_workers{state="up"}') == 2
    pid = own.pid(SECOND)
    os.kill(pid, hurt)
    try:
        texts = pages_of_the_other(own, 3)
    finally:
        if hurt is signal.SIGSTOP:
            with suppress(ProcessLookupError):  # its supervisor may have started another one
                os.kill(pid, signal.SIGCONT)

    assert {figure(text, messages) for text in texts} == {2}
    until(lambda: workers_up(own) == 2, "both workers")
    assert figure(page(own), messages) == 2
    status = json.loads(own.hub.run("status", "-o", "json").stdout)
    assert [each["worker"] for each in status["worker_states"]] == [1, 2]


def workers_up(workers: Workers) -> float:
    """Return how many a page counts; 0: it was asked of one that its supervisor kills, since it has hung for too long."""
    try:
        return figure(page(workers), 'iothub_workers{state="up"}')
    except OSError:
        return 0


def pages_of_the_other(workers: Workers, count: int) -> list[str]:
    """Return pages that the worker gave that is there; the kernel gives some connections to the one that hangs."""
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{workers.hub.ports['http']}/metrics", timeout=4) as answer:
                found.append(answer.read().decode())
        except OSError:
            continue
        if len(found) == count:
            return found
    raise AssertionError("no worker answers")
