"""Hubs with few descriptors: who is there is served, who is refused is counted and logged, and there is room again afterwards."""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.support.crowd import Crowd
from tests.support.datadirs import fresh_hub
from tests.support.hub import free_port
from tests.support.raw import ClosedError, RawClient
from tests.support.waiting import until
from tests.support.witness import Witness, cpu_s
from tests.support.wrapped import WrappedHub

FILES = 256
WANTING = 1000
VERY_FEW = 64


def test_descriptors_run_out_and_nobody_is_harmed(tmp_path: Path) -> None:
    """No busy loop, the witness plays on, no acknowledged message is in danger, connects work again within 5 s."""
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
        assert time.monotonic() - freed < 5
        assert share < 0.2, f"{share:.0%} of a processor"
        assert "Traceback" not in hub.log
        assert hub.stop() == 0
    finally:
        hub.close()


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
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
    hub = WrappedHub(
        plain.data_dir,
        {"tcp": free_port(), "http": free_port()},
        settings=plain.settings,
        prefix=("prlimit", f"--nofile={VERY_FEW}:{VERY_FEW}"),
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

        metrics = page(http, "/metrics")
        assert len(served) <= limit
        assert refused == 40 - len(served) > 0
        assert figure(metrics, 'iothub_accepts_refused_total{listener="tcp",reason="file_descriptors"}') == refused
        until(lambda: hub.log.count('"client refused"') == refused, "a line for each refused client")
        until(lambda: '"descriptors_low"' in page(http, "/status"), "the alarm", 15)
        assert len(hub.rows("rejected", "--unknown")) == refused
        for client in served:
            client.close()
        until(lambda: '"descriptors_low"' not in page(http, "/status"), "the end of the alarm", 15)
        with RawClient(port) as late:
            assert late.connect("late", "acme/dev2").code == 0
        assert "Traceback" not in hub.log
        assert hub.stop() == 0
    finally:
        for client in served:
            with suppress(OSError):
                client.close()
        hub.close()
