"""One running hub for all behaviour tests, with tenants, devices and all four listeners.

Which twin runs is the environment's choice (IOTHUB_PURE_PYTHON=1); the hub's process inherits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iothub.cli.main import run
from tests.support.clients.clients import TRANSPORTS, Listener
from tests.support.clients.mqtt_clients import CONNECT_TIMEOUT_S, FOREIGN_BROKER, Clients
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port

DEVICES = ("dev1", "dev2", "dev3", "dev4")
# Every number is far from the plan's, so that a test sees whose limit acts.
STRICT = (
    "packet_bytes=2KiB",
    "receive_maximum=5",
    "topic_aliases=3",
    "topic_levels=8",
    "filter_levels=8",
    "topic_bytes=200",
    "subscribe_filters=4",
    "session_subscriptions=6",
    "session_expiry_s=1000",
    "keep_alive_min_s=10",
    "retained_messages=2",
)


def prepare(hub: Hub, *words: str) -> None:
    """The same command as `hub.run`, without a process of its own for each."""
    assert run(["--data-dir", str(hub.data_dir), *words]) == 0, words


def _foreign(path: Path) -> Hub:
    return Hub(path, ports={"tcp": int(FOREIGN_BROKER.rpartition(":")[2])})


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Tenants `acme`, `beta`, `wild` (nothing is ever retained in it) and `strict` (low limits); every secret is "secret"."""
    path = tmp_path_factory.mktemp("behaviour")
    if FOREIGN_BROKER:
        yield _foreign(path)
        return
    running = Hub(path / "hub", ports={name: free_port() for name in (*TRANSPORTS, "http")})
    prepare(running, "init")
    prepare(running, "cert", "self-signed", str(running.data_dir))
    for listener in ("tls", "wss"):
        running.settings[f"listeners.{listener}.cert_file"] = str(running.data_dir / "cert.pem")
        running.settings[f"listeners.{listener}.key_file"] = str(running.data_dir / "key.pem")
    devices = path / "devices.csv"
    devices.write_text("name,password\n" + "".join(f"{name},secret\n" for name in DEVICES))
    for tenant in ("acme", "beta", "wild", "strict"):
        prepare(running, "tenant", "create", tenant, "--plan", "unlimited")
        prepare(running, "device", "import", tenant, str(devices))
    prepare(running, "quota", "set", "strict", *STRICT)
    running.settings["auth.failures"] = "off"  # the tests share devices, and many show a wrong secret
    running.settings["mqtt.connect_timeout"] = f"{CONNECT_TIMEOUT_S}s"
    running.start()
    yield running
    running.finish()


@pytest.fixture
def say(hub: Hub) -> Callable[..., None]:
    """What an operator says to the hub."""
    return lambda *words: prepare(hub, *words)


@pytest.fixture(params=("tcp",) if FOREIGN_BROKER else TRANSPORTS)
def listener(hub: Hub, request: pytest.FixtureRequest) -> Listener:
    """Every transport in turn."""
    assert FOREIGN_BROKER or hub.is_running(), hub.log[-4000:]
    return Listener(hub, request.param)


@pytest.fixture
def join(listener: Listener) -> Iterator[Clients]:
    """Clients through every listener."""
    clients = Clients(listener)
    yield clients
    clients.leave()


@pytest.fixture
def tcp(hub: Hub) -> Iterator[Clients]:
    """Clients over TCP alone: for what takes long or has nothing to do with transports."""
    assert FOREIGN_BROKER or hub.is_running(), hub.log[-4000:]
    clients = Clients(Listener(hub, "tcp"))
    yield clients
    clients.leave()


@pytest.fixture(params=(4, 5), ids=("3.1.1", "5.0"))
def version(request: pytest.FixtureRequest) -> int:
    """Protocol level of a client."""
    return int(request.param)
