"""Hubs with few descriptors: who is there is served, who is refused is counted and logged, and there is room again afterwards."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.clients.crowd import Crowd
from tests.support.clients.packets import PUBLISH
from tests.support.clients.raw import ClosedError, RawClient
from tests.support.clients.witness import Witness, cpu_s
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import IOTHUB
from tests.support.hubs.wrapped import WrappedHub
from tests.support.night import by_day
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until

FILES = 256
WANTING = 1000
FEW_CLIENTS = 20
NEEDED = re.compile(r"the hub needs at least (\d+),")


def test_descriptors_run_out_and_nobody_is_harmed(tmp_path: Path) -> None:
    """No busy loop, the witness plays on, no acknowledged message is in danger, connects work again, at night within 5 s."""
    plain = fresh_hub(tmp_path, mqtt__connect_timeout="30s")
    hub = WrappedHub(plain.data_dir, settings=plain.settings, prefix=("prlimit", f"--nofile={FILES}:{FILES}"))
    hub.start()
    assert hub.process is not None
    pid, port = hub.process.pid, hub.ports["tcp"]
    try:
        with RawClient(port) as keeper, Crowd(port) as crowd:
            keeper.connect("keeper", "acme/dev1", clean=False)
            keeper.subscribe(("keeper", 1))
            with Witness(hub):
                for _ in range(WANTING):
                    crowd.add()
                crowd.wait_closed(1.0)
                for number in range(1, 20):
                    keeper.publish("keeper", b"x", 1, number)
            begun, used = time.monotonic(), cpu_s(pid)
            crowd.wait_closed(3.0)
            share = (cpu_s(pid) - used) / (time.monotonic() - begun)
        freed = time.monotonic()
        with RawClient(port) as late:
            assert late.connect("late", "acme/dev2").code == 0
        assert time.monotonic() - freed < by_day(PATIENCE_S, 5)
        assert share < 0.2, f"{share:.0%} of a processor"
        assert "Traceback" not in hub.log
        assert hub.stop() == 0
    finally:
        hub.close()


def start(data_dir: Path, limit: int, *words: str) -> subprocess.CompletedProcess[str]:
    prefix = ("prlimit", f"--nofile={limit}:{limit}")
    command = [*prefix, str(IOTHUB), "--data-dir", str(data_dir), "serve", *words]
    flags = ("--set", f"listeners.tcp.port={free_port()}")
    return subprocess.run([*command, *flags], capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def needed_by(data_dir: Path) -> int:
    """Return the fewest descriptors with which a hub starts, as it says itself."""
    return int(NEEDED.findall(start(data_dir, 20, "--check").stderr)[0])


@pytest.mark.parametrize("limit", [6, 20, 40, 58])
def test_limit_below_the_needs_of_the_hub_is_refused_before_anything_is_opened(limit: int, tmp_path: Path) -> None:
    """A start and its check say the same, and the directory is as it was."""
    data_dir = fresh_hub(tmp_path).data_dir
    before = sorted(data_dir.iterdir())

    checked, started = start(data_dir, limit, "--check"), start(data_dir, limit)

    assert (checked.returncode, started.returncode) == (2, 2)
    assert checked.stderr == started.stderr
    assert started.stderr.startswith(f"iothub: the limit of {limit} file descriptors is too low: ")
    assert len(started.stderr.splitlines()) == 1
    assert sorted(data_dir.iterdir()) == before


def test_hub_starts_with_as_many_descriptors_as_it_says_and_serves(tmp_path: Path) -> None:
    plain = fresh_hub(tmp_path)
    needed = needed_by(plain.data_dir)
    hub = WrappedHub(plain.data_dir, settings=plain.settings, prefix=("prlimit", f"--nofile={needed}:{needed}"))
    hub.start()
    try:
        clients: list[RawClient | None] = []

        def is_served() -> bool:
            clients.append(served_client(hub.ports["tcp"], "one"))
            return clients[-1] is not None

        until(is_served, "a place: that of who tried whether the hub listens is free a moment later")
        client = clients[-1]
        assert client is not None
        client.subscribe(("one", 1))
        client.publish("one", b"x", 1, 1)
        assert client.expect(PUBLISH).payload == b"x"
        client.close()
        assert hub.stop() == 0
        assert "Too many open files" not in hub.log
    finally:
        hub.close()


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def figure(text: str, name: str) -> int:
    return next(int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def served_client(port: int, client_id: str) -> RawClient | None:
    """A client that has connected; None: the hub has closed it."""
    with suppress(ClosedError, ConnectionError), ExitStack() as stack:
        client = stack.enter_context(RawClient(port))
        assert client.connect(client_id, "acme/dev1").code == 0
        stack.pop_all()
        return client
    return None


def test_clients_beyond_the_descriptors_are_counted_and_logged_and_health_answers(tmp_path: Path) -> None:
    """The limit that `status` shows is what is served; the alarm ends with the crowd."""
    plain = fresh_hub(tmp_path)
    very_few = needed_by(plain.data_dir) + FEW_CLIENTS
    hub = WrappedHub(
        plain.data_dir,
        {"tcp": free_port(), "http": free_port()},
        settings=plain.settings,
        prefix=("prlimit", f"--nofile={very_few}:{very_few}"),
    )
    hub.start()
    port, http = hub.ports["tcp"], hub.ports["http"]
    served, refused = [], 0
    try:
        until(lambda: json.loads(page(http, "/readyz"))["ready"], "the hub to be ready")
        limit = json.loads(page(http, "/status"))["connections"]["limit"]
        assert 0 < limit < 40
        assert "file descriptors allow fewer connections than max_connections" in hub.log

        for number in range(40):
            client = served_client(port, f"c{number}")
            if client is None:
                refused += 1
            else:
                served.append(client)
            assert json.loads(page(http, "/readyz"))["ready"]
            connections = json.loads(page(http, "/status"))["connections"]
            assert connections["used"] <= connections["limit"]

        metrics = page(http, "/metrics")
        assert len(served) <= limit
        assert refused == 40 - len(served) > 0
        assert figure(metrics, 'iothub_accepts_refused_total{listener="tcp",reason="file_descriptors"}') == refused
        until(lambda: hub.log.count('"client refused"') == refused, "a line for each refused client")
        until(lambda: '"descriptors_low"' in page(http, "/status"), "the alarm")
        assert len(hub.rows("rejected", "--unknown")) == refused
        for client in served:
            client.close()
        until(lambda: '"descriptors_low"' not in page(http, "/status"), "the end of the alarm")
        with RawClient(port) as late:
            assert late.connect("late", "acme/dev2").code == 0
        assert "Traceback" not in hub.log
        assert hub.stop() == 0
    finally:
        for client in served:
            with suppress(OSError):
                client.close()
        hub.close()
