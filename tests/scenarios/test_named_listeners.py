"""Two TLS listeners of one hub: the public one, and one for partners, who must show a certificate."""

from __future__ import annotations

import queue
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest

from iothub.testing.certificates import Authority, Pair
from tests.support.clients.clients import unique
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port

PUBLIC, PARTNERS = "tls", "tls.partners"
TIMEOUT_S = 300  # only what hangs comes to it


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def partner(authority: Authority) -> Pair:
    return authority.issue("partner", ("partner",))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Hub]:
    """`sensor` logs in with a password, `partner` with its certificate."""
    pair = authority.issue("server")
    running = Hub(
        tmp_path_factory.mktemp("listeners") / "hub",
        ports={name: free_port() for name in (PUBLIC, PARTNERS, "http")},
    )
    running.init()
    with running.data_dir.joinpath("iothub.toml").open("a") as file:
        file.write(f"""
[listeners.tls]
port = {running.ports[PUBLIC]}
cert_file = "{pair.cert_file}"
key_file = "{pair.key_file}"

[listeners.tls.partners]
port = {running.ports[PARTNERS]}
client_ca_file = "{authority.ca_file}"
client_certificates = "required"
""")
    running.tenant("home", "sensor", "partner")
    running.run("device", "set-certificate", "home", "partner", "partner")
    running.start()
    yield running
    running.finish()


class Client:
    """A paho client that keeps what happened in queues."""

    def __init__(self, hub: Hub, listener: str, authority: Authority, device: str, pair: Pair | None = None) -> None:
        self.port = hub.ports[listener]
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, unique(device), protocol=paho.MQTTv5)
        self.client.username_pw_set(f"home/{device}", None if pair else "secret")
        self.client.tls_set(authority.ca_file, *((pair.cert_file, pair.key_file) if pair else ()))
        self.connected: queue.Queue[Any] = queue.Queue()
        self.subscribed: queue.Queue[Any] = queue.Queue()
        self.messages: queue.Queue[bytes] = queue.Queue()
        self.client.on_connect = lambda _c, _u, _f, code, _p: self.connected.put(code)
        self.client.on_subscribe = lambda _c, _u, _m, codes, _p: self.subscribed.put(codes)
        self.client.on_message = lambda _c, _u, message: self.messages.put(message.payload)

    def connect(self) -> None:
        self.client.connect("localhost", self.port)
        self.client.loop_start()
        code = self.connected.get(timeout=TIMEOUT_S)
        assert not code.is_failure, code

    def is_let_in(self) -> bool:
        """Connect without a thread: the handshake fails, or the first read after it (TLS 1.3)."""
        try:
            self.client.connect("localhost", self.port)
            while self.connected.empty():
                if self.client.loop(timeout=1) != paho.MQTT_ERR_SUCCESS:
                    return False
        except OSError:
            return False
        return True

    def subscribe(self, topic: str) -> None:
        self.client.subscribe(topic, qos=1)
        self.subscribed.get(timeout=TIMEOUT_S)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def paho_on(hub: Hub, authority: Authority) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(listener: str, device: str, pair: Pair | None = None) -> Client:
        made.append(Client(hub, listener, authority, device, pair))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def publish(hub: Hub, authority: Authority, program: Callable[[str], str]) -> Callable[..., int]:
    """Publish with mosquitto_pub and return its exit code."""

    def run(listener: str, device: str, topic: str, pair: Pair | None = None) -> int:
        who = [
            "-u",
            f"home/{device}",
            *(["--cert", pair.cert_file, "--key", pair.key_file] if pair else ["-P", "secret"]),
        ]
        where = ["-h", "localhost", "-p", str(hub.ports[listener]), "--cafile", authority.ca_file]
        line = [program("mosquitto_pub"), *where, *who, "-V", "5", "-q", "1", "-t", topic, "-m", listener]
        return subprocess.run(line, capture_output=True, check=False, timeout=TIMEOUT_S).returncode

    return run


def test_clients_of_both_listeners_meet_in_one_tenant(
    paho_on: Callable[..., Client], publish: Callable[..., int], partner: Pair
) -> None:
    topic = unique("room")
    clients = [paho_on(PUBLIC, "sensor"), paho_on(PARTNERS, "partner", partner)]
    for client in clients:
        client.connect()
        client.subscribe(topic)

    assert publish(PUBLIC, "sensor", topic) == 0
    assert publish(PARTNERS, "partner", topic, partner) == 0

    for client in clients:
        assert {client.messages.get(timeout=TIMEOUT_S) for _ in range(2)} == {PUBLIC.encode(), PARTNERS.encode()}


def test_certificate_is_required_at_one_listener_alone(
    paho_on: Callable[..., Client], publish: Callable[..., int]
) -> None:
    """A password does not replace it there."""
    paho_on(PUBLIC, "sensor").connect()
    assert publish(PUBLIC, "sensor", unique("room")) == 0

    assert publish(PARTNERS, "sensor", unique("room")) != 0
    refused = paho_on(PARTNERS, "sensor")
    assert not refused.is_let_in()


def test_name_is_what_an_operator_sees(hub: Hub, paho_on: Callable[..., Client], partner: Pair) -> None:
    """In `status`, metrics, the log and `doctor`."""
    paho_on(PARTNERS, "partner", partner).connect()

    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=TIMEOUT_S) as answer:
        metrics = answer.read().decode().splitlines()
    status, findings = hub.run("status").stdout, hub.run("doctor", check=False).stdout
    lines = [line for line in hub.log.splitlines() if "client connected" in line]

    assert 'iothub_connections{listener="tls.partners"} 1' in metrics
    assert any("certificate" in each and 'listener="tls.partners"' in each for each in metrics)
    assert re.search(rf"^tls.partners +127.0.0.1:{hub.ports[PARTNERS]}$", status, re.MULTILINE)
    assert "listener tls.partners" in findings
    assert "certificate tls.partners" in findings
    assert any("tls.partners" in line for line in lines)
