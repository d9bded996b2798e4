"""How a hub with several workers starts and stops, and that one with one process has nothing of it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import closing

from iothub.config.datadir import DataDir
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.integration.workers.conftest import start, workers_of
from tests.support.clients.packets import DISCONNECT
from tests.support.hubs.hub import Hub
from tests.support.hubs.workers import FIRST, SECOND, children
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until


def run(hub: Hub, *words: str) -> subprocess.CompletedProcess[str]:
    """Start it, to see it end."""
    return subprocess.run([*hub.command(), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_stop_disconnects_the_clients_of_every_worker(make_hub: Callable[[], Hub]) -> None:
    hub = make_hub()
    start(hub)
    with workers_of(hub) as there:
        clients = [there.join(place) for place in (FIRST, SECOND)]

        assert hub.stop() == 0

        for client in clients:
            assert [(packet.kind, packet.code) for packet in client.expect_closed()] == [(DISCONNECT, 0x8B)]
    assert "Traceback" not in hub.log
    assert DataDir(hub.data_dir).read_hub() is None
    with closing(AccountStore(sqlite_url(hub.data_dir / "accounts.db"))) as store:
        assert [row.gone_why for row in hubs.read(store).rows] == ["left", "left"]


def test_signal_to_every_process_stops_as_one_to_the_supervisor(make_hub: Callable[[], Hub]) -> None:
    """Which is what a service manager may send."""
    hub = make_hub()
    start(hub)
    assert hub.process is not None
    for pid in children(hub.process.pid):
        os.kill(pid, signal.SIGTERM)

    hub.process.send_signal(signal.SIGTERM)

    assert hub.process.wait(PATIENCE_S) == 0, hub.log[-6000:]
    assert "Traceback" not in hub.log


def test_port_in_use_is_said_once(make_hub: Callable[[], Hub]) -> None:
    """With the exit code of a hub with one process, also if the other program shares its port with everybody."""
    hub = make_hub()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", hub.ports["tcp"]))
        taken.listen()

        failed = run(hub)

    assert failed.returncode == 7
    assert failed.stderr.count("the port is in use") == 1


def test_wrong_configuration_starts_nothing(make_hub: Callable[[], Hub]) -> None:
    hub = make_hub()
    hub.settings["node.number"] = "65535"

    failed = run(hub)

    assert (failed.returncode, failed.stderr.count("2 workers need the numbers")) == (2, 1)
    assert DataDir(hub.data_dir).workers() == []


def test_wrong_number_of_workers_names_the_option(make_hub: Callable[[], Hub]) -> None:
    refused = run(make_hub(), "--workers", "65")

    assert refused.returncode == 2
    assert "--workers" in refused.stderr
    assert 'expected a whole number from 1 to 64, or "auto"' in refused.stderr


def test_what_one_worker_finds_ends_the_start_with_one_error(make_hub: Callable[[], Hub]) -> None:
    """It is printed once, whatever the others do, and nothing is tried again."""
    hub = make_hub()
    (hub.data_dir / "run").mkdir(mode=0o700)
    (hub.data_dir / "run" / "peer-2.sock").mkdir()

    failed = run(hub)

    assert failed.returncode == 7
    assert failed.stderr.count("iothub: cluster.listen: cannot use unix:") == 1


def test_check_starts_nothing(make_hub: Callable[[], Hub]) -> None:
    hub = make_hub()

    done = run(hub, "--check")

    assert (done.returncode, done.stderr) == (0, "nothing keeps the hub from starting\n")
    assert DataDir(hub.data_dir).workers() == []


def test_second_hub_on_the_directory_is_refused(make_hub: Callable[[], Hub]) -> None:
    hub = make_hub()
    start(hub)

    refused = run(hub)

    assert refused.returncode == 4
    assert "is in use by process" in refused.stderr
    assert hub.stop() == 0


def test_one_worker_is_a_hub_without_a_supervisor(make_hub: Callable[[], Hub]) -> None:
    """No process more, no directory, no row in the accounts."""
    hub = make_hub()
    hub.settings["node.workers"] = "1"
    hub.start()
    assert hub.process is not None

    assert children(hub.process.pid) == []
    assert not (hub.data_dir / "workers").exists()
    assert not (hub.data_dir / "run").exists()
    with closing(AccountStore(sqlite_url(hub.data_dir / "accounts.db"))) as store:
        assert hubs.read(store).rows == []
    assert '"process"' not in hub.log
    assert hub.stop() == 0


def test_sighup_reloads_the_certificate_of_every_worker(make_hub: Callable[[], Hub]) -> None:
    """Whichever worker gets the handshake shows the new one."""
    hub = make_hub()
    hub.ports["tls"] = free_port()
    hub.settings |= {f"listeners.tls.{key}_file": str(hub.data_dir / f"{key}.pem") for key in ("cert", "key")}
    renew(hub, "first")
    start(hub)
    before = shown(hub)
    assert len(before) == 1
    assert hub.process is not None

    renew(hub, "second")
    hub.process.send_signal(signal.SIGHUP)
    until(lambda: len(shown(hub)) == 1 and shown(hub) != before, "the new certificate at both workers")

    assert not before & shown(hub)


def renew(hub: Hub, name: str) -> None:
    made = hub.data_dir.parent / name
    hub.run("cert", "self-signed", str(made))
    for file in ("key.pem", "cert.pem"):
        shutil.copy(made / file, hub.data_dir / file)


def shown(hub: Hub) -> set[str]:
    """Return the certificates of some handshakes: the kernel gives each to one of the workers."""
    return {ssl.get_server_certificate(("127.0.0.1", hub.ports["tls"]), timeout=PATIENCE_S) for _ in range(16)}
