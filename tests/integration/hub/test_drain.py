"""A hub is drained: nobody comes in, everybody is asked to go, and it may be stopped or serve again."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Clients
from tests.support.clients.packets import DISCONNECT, PUBACK
from tests.support.hubs.hub import IOTHUB, Hub
from tests.support.hubs.kafka_hub import readiness
from tests.support.waiting import PATIENCE_S, until

MakeHub = Callable[..., Hub]
MakeClients = Callable[..., Clients]


def accepts(hub: Hub) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", hub.ports["tcp"])) == 0


def drained(hub: Hub, *words: str) -> dict[str, object]:
    return dict(json.loads(hub.run("-o", "json", "cluster", "drain", "--self", *words).stdout))


def page(hub: Hub) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def own_row(hub: Hub) -> dict[str, object]:
    (row,) = hub.rows("cluster", "status")
    return row


def test_drained_hub_has_no_client_and_takes_none_until_it_is_resumed(make_hub: MakeHub, clients: MakeClients) -> None:
    """Clients of 5.0 hear why; what is said is Server shutting down, because no other hub would take them."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    old, new, kept = join(4), join(5), join(5, "kept", keep=True)
    kept.subscribe(("a", 1))

    answer = drained(hub)

    assert (answer["clients"], answer["closed"]) == (0, 3)
    assert old.expect_closed() == []
    assert [(packet.kind, packet.code) for packet in new.expect_closed()] == [(DISCONNECT, 0x8B)]
    kept.expect_closed()
    assert not accepts(hub)
    is_ready, page = readiness(hub)
    assert not is_ready
    assert "the hub is draining: 0 clients are left" in page
    assert (own_row(hub)["state"], own_row(hub)["clients"]) == ("draining", 0)

    assert "lets clients in again" in hub.run("cluster", "resume", "0").stderr

    assert readiness(hub)[0]
    assert own_row(hub)["state"] == "up"
    writer, reader = join(4, device="dev2"), join(5, "kept", keep=True)
    assert reader.connack.session_present
    writer.publish("a", b"x", 1)
    assert reader.payloads() == [b"x"]
    hub.finish()


def test_drain_publishes_no_will_unless_its_delay_passes(make_hub: MakeHub, clients: MakeClients) -> None:
    """A client that moves to another hub has not died; one that comes nowhere is missed after the delay that it has asked for."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    reader = join(5, "reader", device="dev2", keep=True)
    reader.subscribe(("will/#", 1))
    join(4, will=("will/old", b"", 1, False))
    join(4, "old-kept", keep=True, will=("will/old-kept", b"", 1, False))
    join(5, will=("will/new", b"", 1, False))
    join(5, "late", keep=True, will=("will/late", b"", 1, False), will_props=[(names.WILL_DELAY, 1)])

    assert drained(hub)["closed"] == 5
    hub.run("cluster", "resume", "--self")

    reader = join(5, "reader", device="dev2", keep=True)
    (will,) = reader.get()
    assert will.topic == "will/late"
    reader.ack(PUBACK, will.packet_id)
    reader.nothing()
    hub.finish()


def test_clients_and_metrics_hear_of_the_drain(make_hub: MakeHub, clients: MakeClients) -> None:
    hub = make_hub()
    hub.run("acl", "allow", "acme", "dev1", "subscribe", "$SYS/#")
    hub.start()
    watcher = clients(hub)(5)
    watcher.subscribe(("$SYS/broker/#", 0))
    (state,) = watcher.get()
    assert (state.topic, state.payload) == ("$SYS/broker/0/state", b"up")
    hub.run("cluster", "drain", "--self", "--no-wait", "--rate", "1/s")

    assert [packet.payload for packet in watcher.expect_closed() if packet.topic] == [b"draining"]
    assert "iothub_draining 1" in page(hub)
    hub.run("cluster", "resume", "--self")
    assert "iothub_draining 0" in page(hub)
    hub.finish()


def test_clients_go_at_the_rate_that_was_asked_for(make_hub: MakeHub, clients: MakeClients) -> None:
    """The command returns at once if it shall, and another one changes the rate and waits."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    for _ in range(30):
        join(4)

    answer = drained(hub, "--rate", "1/s", "--no-wait")
    assert int(str(answer["clients"])) >= 28
    assert own_row(hub)["state"] == "draining"

    began = time.monotonic()
    answer = drained(hub, "--rate", "20/s")

    assert (answer["clients"], answer["closed"]) == (0, 30)
    assert time.monotonic() - began > 1.0
    hub.finish()


def test_who_waits_for_a_drain_hears_of_its_end(make_hub: MakeHub, clients: MakeClients) -> None:
    """Another person resumes the hub: the first one must not believe that it is empty. Or the hub takes too long, and goes on."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    stays = [join(4) for _ in range(5)]
    command = [str(IOTHUB), "--data-dir", str(hub.data_dir), "cluster", "drain", "--self", "--rate", "1/s"]
    waiting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: own_row(hub)["state"] == "draining", "the hub drains")

    hub.run("cluster", "resume", "--self")

    _, said = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 4
    assert "was resumed before it was empty" in said
    stays[-1].ping()

    late = hub.run("cluster", "drain", "--self", "--rate", "1/s", "--timeout", "1s", check=False)
    assert late.returncode == 7
    assert "continues it" in late.stderr
    assert own_row(hub)["state"] == "draining"
    hub.finish()


def test_port_that_was_taken_meanwhile_keeps_the_hub_draining(make_hub: MakeHub) -> None:
    hub = make_hub()
    hub.start()
    drained(hub)

    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", hub.ports["tcp"]))
        other.listen()
        refused = hub.run("cluster", "resume", "--self", check=False)

    assert refused.returncode == 7
    assert "the port is in use" in refused.stderr
    assert own_row(hub)["state"] == "draining"
    hub.run("cluster", "resume", "--self")
    assert accepts(hub)
    hub.finish()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("drain", "7"), 3, "there is no hub 7; "),
        (("resume", "7"), 3, "there is no hub 7; "),
    ],
)
def test_hub_that_is_not_there_is_named(make_hub: MakeHub, words: tuple[str, ...], code: int, text: str) -> None:
    hub = make_hub()
    hub.start()

    refused = hub.run("cluster", *words, check=False)

    assert refused.returncode == code
    assert text in refused.stderr
    assert "was not draining" in hub.run("cluster", "resume", "0").stderr
    hub.finish()


def test_stopped_hub_drains_first_if_it_is_told_to(make_hub: MakeHub, clients: MakeClients) -> None:
    """SIGTERM: its clients are asked to go, and then it ends. No Will is published."""
    hub = make_hub(cluster__drain_on_stop="1h")
    hub.start()
    join = clients(hub)
    reader = join(5, "reader", device="dev2", keep=True)
    reader.subscribe(("will/#", 1))
    new, old = join(5, will=("will/new", b"", 1, False)), join(4, will=("will/old", b"", 1, False))

    assert hub.stop() == 0  # long before the hour is over

    assert [(packet.kind, packet.code) for packet in new.expect_closed()] == [(DISCONNECT, 0x8B)]
    assert old.expect_closed() == []
    assert "drained" in hub.log
    assert "Traceback" not in hub.log
    hub.start()
    join(5, "reader", device="dev2", keep=True).nothing()
    hub.finish()


def test_second_signal_does_not_wait_for_the_drain(make_hub: MakeHub, clients: MakeClients) -> None:
    hub = make_hub(cluster__drain_on_stop="1h")
    hub.start()
    silent = clients(hub).open_connection()  # it sends no CONNECT, so there is no session to close
    assert hub.process is not None
    hub.process.send_signal(signal.SIGTERM)
    until(lambda: "draining" in readiness(hub)[1], "the hub drains")

    hub.process.send_signal(signal.SIGTERM)

    assert hub.process.wait(timeout=PATIENCE_S) == 128 + signal.SIGTERM
    silent.close()
