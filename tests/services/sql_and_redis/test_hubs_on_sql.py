"""Hubs whose accounts are on MariaDB or PostgreSQL: what others change is applied within a second, and no fault of the server grants access."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pytest

from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Client, Clients
from tests.support.clients.witness import Witness
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import readiness
from tests.support.hubs.server_hub import alarms
from tests.support.hubs.sql_hub import sql_hubs
from tests.support.servers.sql_servers import SERVERS, own_database
from tests.support.waiting import until

APPLIED_S = 1.0 + 2.0  # a second, and the machine may be busy with other tests: what it took is printed
NOTICE_S = 15.0  # two attempts of the hub's, each as long as its time-outs
GONE = ("accounts_unreachable", "")
KEPT = 100  # messages for somebody who is away, published while the server goes
REFUSED = 0x88  # server unavailable
NOT_AUTHORIZED = 0x87


@dataclass
class _Stage:
    """Two hubs that run on one server."""

    services: Services
    server: str
    hubs: list[Hub]

    def clients(self, number: int = 0) -> Clients:
        return Clients(Listener(self.hubs[number], "tcp"))

    def restore(self) -> None:
        self.services.up(self.server)
        for hub in self.hubs:
            if not hub.is_running():
                hub.start()
            until(partial(_is_well, hub), "the hub is well")


@pytest.fixture(scope="module", params=SERVERS)
def staged(
    request: pytest.FixtureRequest, _set: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Stage]:
    _set.up(request.param)
    with ExitStack() as stack:
        url = stack.enter_context(own_database(_set, request.param))
        hubs = sql_hubs(tmp_path_factory.mktemp("hubs"), url, count=2)
        for hub in hubs:
            stack.callback(hub.close)
        yield _Stage(_set, request.param, hubs)


@pytest.fixture
def stage(staged: _Stage) -> Iterator[_Stage]:
    staged.restore()
    yield staged
    staged.services.up(staged.server)


def _is_well(hub: Hub) -> bool:
    return readiness(hub)[0] and GONE not in alarms(hub)


def _publish_code(client: Client, topic: str) -> int:
    puback = client.publish(topic, b"", qos=1)
    assert puback is not None
    return puback.code


def _connect_code(stage: _Stage, number: int, device: str) -> int:
    """The CONNACK's reason code; the client goes again."""
    clients = stage.clients(number)
    client = clients.ask(5, device=device)
    clients.leave()
    return client.connack.code


def test_denied_filter_is_denied_at_every_hub_within_a_second(stage: _Stage) -> None:
    """One hub's command line is nobody's privilege: all follow the same change log."""
    all_clients = [stage.clients(0), stage.clients(1)]
    connected = [clients(5, device="dev1") for clients in all_clients]
    topic = f"locked/{time.monotonic_ns()}"
    stage.hubs[0].run("acl", "deny", "acme", "dev1", "publish", "locked/#")
    began = time.monotonic()

    for client in connected:
        while _publish_code(client, topic) != NOT_AUTHORIZED:
            assert time.monotonic() - began < APPLIED_S
    sys.stdout.write(f"denied everywhere after {time.monotonic() - began:.2f} s\n")
    for clients in all_clients:
        clients.leave()
    stage.hubs[0].run("acl", "remove", "acme", "dev1", "publish", "locked/#")


def test_revoked_device_is_put_out_at_every_hub_within_a_second(stage: _Stage) -> None:
    """Its connections are closed, and it does not come in again."""
    all_clients = [stage.clients(0), stage.clients(1)]
    connected = [clients(5, device="dev2") for clients in all_clients]
    stage.hubs[1].run("device", "disable", "acme", "dev2")
    began = time.monotonic()

    for client in connected:
        client.expect_closed(timeout=APPLIED_S)
    took = time.monotonic() - began
    sys.stdout.write(f"put out everywhere after {took:.2f} s\n")
    for clients in all_clients:
        clients.leave()
    codes = [_connect_code(stage, number, "dev2") for number in (0, 1)]
    stage.hubs[0].run("device", "enable", "acme", "dev2")

    assert took < APPLIED_S
    assert 0 not in codes


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_server_that_goes_opens_no_door(stage: _Stage, fault: str) -> None:
    """Whoever is in memory comes in; everybody else hears 0x88; an alarm names it; all is well soon after its return, by itself.

    Who is connected publishes and receives all the while, and nothing is lost for who is not.
    """
    hub = stage.hubs[0]
    hub.stop()
    hub.start()  # nobody is in memory
    clients = stage.clients()
    sleeper = f"sleeper {stage.server} {fault}"
    clients(5, sleeper, keep=True).subscribe(("kept", 1))
    clients.leave()
    publisher = clients(5)
    with Witness(hub, limit_s=1.5):
        getattr(stage.services, fault)(stage.server)
        for _ in range(KEPT):
            assert _publish_code(publisher, "kept") == 0
            time.sleep(NOTICE_S / KEPT / 10)
        until(lambda: GONE in alarms(hub), "the alarm", NOTICE_S)

        assert _connect_code(stage, 0, "dev1") == 0
        assert _connect_code(stage, 0, "dev2") == REFUSED
        assert _connect_code(stage, 0, "nobody") == REFUSED
        stage.services.up(stage.server)
        returned = time.monotonic()
        until(lambda: _connect_code(stage, 0, "dev2") == 0, "dev2 comes in")
        until(lambda: GONE not in alarms(hub), "no alarm")
    back = clients(5, sleeper, keep=True)
    assert len(back.take(KEPT)) == KEPT
    back.nothing()
    clients.leave()
    sys.stdout.write(f"well {time.monotonic() - returned:.1f} s after the return of {stage.server}\n")

    assert _connect_code(stage, 0, "nobody") not in (0, REFUSED)
    assert "iothub:iothub" not in hub.log
    assert "Traceback" not in hub.log


def test_hub_waits_for_the_server_at_the_start(stage: _Stage) -> None:
    """With a reason on `/readyz`; who does not want to wait hears so; it goes on by itself."""
    hub = stage.hubs[1]
    assert hub.stop() == 0
    stage.services.kill(stage.server)
    refused = hub.start_impatiently()
    hub.launch()
    until(lambda: "waiting for the accounts database" in readiness(hub)[1], "the reason on /readyz")

    stage.services.up(stage.server)

    until(lambda: readiness(hub)[0], "the hub is ready")
    assert _connect_code(stage, 1, "dev1") == 0
    assert refused.returncode == 7
    assert refused.stderr.splitlines()[-1].startswith("iothub: the accounts database does not answer: ")
    assert "Traceback" not in hub.log
