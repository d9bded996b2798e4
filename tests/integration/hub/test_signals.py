"""SIGTERM, SIGINT and SIGHUP to a hub with clients."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clients.mqtt_clients import Clients
from tests.support.clients.packets import DISCONNECT
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S, until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_disconnects_everybody(
    make_hub: Callable[..., Hub], clients: Callable[..., Clients], number: signal.Signals
) -> None:
    """5.0 clients get 0x8B; one that has not sent CONNECT delays nothing."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    old, new, silent = join(4), join(5), join.open_connection()
    assert hub.process is not None
    hub.process.send_signal(number)

    said = new.expect_closed()
    assert [(packet.kind, packet.code) for packet in said] == [(DISCONNECT, 0x8B)]
    assert old.expect_closed() == []
    assert silent.expect_closed() == []
    assert hub.process.wait(timeout=PATIENCE_S) == 0
    assert "Traceback" not in hub.log


def test_stop_loses_nothing_that_was_acknowledged(
    make_hub: Callable[..., Hub], clients: Callable[..., Clients]
) -> None:
    hub = make_hub()
    hub.start()
    join = clients(hub)
    reader = join(5, "reader", keep=True)
    reader.subscribe(("#", 1))
    reader.disconnect()
    writer = join(5, device="dev2")
    for number in range(1, 200):
        writer.send(writer.publish_bytes("a", str(number).encode(), 1, number))
    writer.expect(4)
    assert hub.stop() == 0
    acknowledged = 1 + sum(packet.kind == 4 for packet in writer.expect_closed())
    hub.start()

    again = join(5, "reader", keep=True)
    assert again.connack.session_present
    assert again.payloads(acknowledged)[-1] == str(acknowledged).encode()


def test_last_line_of_the_log_says_how_it_ended(make_hub: Callable[..., Hub], clients: Callable[..., Clients]) -> None:
    """With how many connections were closed, and whether anything was given up."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    join(4)
    join(5, "kept", keep=True)

    assert hub.stop() == 0

    last = json.loads(hub.log.splitlines()[-1])
    assert (last["event"], last["connections_closed"]) == ("stopped", 2)
    assert (last["writes_given_up"], last["stores_closed"]) == (0, True)


@pytest.mark.parametrize("is_kept", [True, False], ids=["persistent", "transient"])
def test_stop_publishes_the_wills_of_who_was_there(
    make_hub: Callable[..., Hub], clients: Callable[..., Clients], is_kept: bool
) -> None:
    """The server closes, no client has sent DISCONNECT [MQTT-3.1.2-8]; once, to a subscriber who was away, and retained."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    reader = join(5, "reader", keep=True)
    reader.subscribe(("w", 1))
    reader.disconnect()
    join(4, "mortal", device="dev2", keep=is_kept, will=("w", b"gone", 1, True))

    assert hub.stop() == 0
    hub.start()

    again = join(5, "reader", keep=True)
    assert again.payloads() == [b"gone"]
    again.nothing()
    late = join(5, "late", device="dev2")
    late.subscribe(("w", 1))
    (kept,) = late.take()
    assert (kept.payload, kept.retain) == (b"gone", True)


def test_stop_knows_what_was_sent_of_sessions_that_had_left_before(
    make_hub: Callable[..., Hub], clients: Callable[..., Clients]
) -> None:
    """DUP 1 for what was sent, DUP 0 for what came while the client was away, whether it is online at the stop or not [MQTT-3.3.1-1]."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    reader = join(5, "reader", keep=True)
    reader.subscribe(("a", 1))
    writer = join(5, device="dev2")
    writer.publish("a", b"sent", 1, 1)
    reader.get()
    reader.send_packet(0xE0)
    reader.expect_closed()
    writer.publish("a", b"kept", 1, 2)
    assert hub.stop() == 0
    hub.start()

    again = join(5, "reader", keep=True)

    assert [(packet.payload, packet.dup) for packet in again.take(2)] == [(b"sent", True), (b"kept", False)]


def test_second_signal_ends_the_hub_at_once(make_hub: Callable[..., Hub], clients: Callable[..., Clients]) -> None:
    """A client that reads nothing makes the first stop wait for a moment."""
    hub = make_hub(listeners__tcp__send_buffer_bytes="4KiB", node__stop_timeout="600s")
    hub.start()
    join = clients(hub)
    deaf = join(5)
    deaf.subscribe(("#", 0))
    busy = join(5, device="dev2")
    for number in range(1, 33):
        busy.publish("a", b"x" * 200_000, 1, number)
    assert hub.process is not None
    hub.process.send_signal(signal.SIGTERM)
    until(lambda: "stopping" in hub.log, "the first signal is heard")
    hub.process.send_signal(signal.SIGTERM)

    assert hub.process.wait(timeout=PATIENCE_S) == 128 + signal.SIGTERM  # half of what a stop may take here


def shown_by(hub: Hub) -> str:
    """The certificate that a new handshake is shown."""
    return ssl.get_server_certificate(("127.0.0.1", hub.ports["tls"]), timeout=PATIENCE_S)


def new_certificate(hub: Hub, path: Path) -> None:
    """Put another pair in place."""
    hub.run("cert", "self-signed", str(path))
    for name in ("key.pem", "cert.pem"):
        shutil.copy(path / name, hub.data_dir / name)


def alarms(hub: Hub) -> dict[str, str]:
    shown = json.loads(hub.run("-o", "json", "status").stdout)
    return {alarm["name"]: alarm["detail"] for alarm in shown["alarms"]}


def test_certificates_are_reloaded_without_touching_connections(
    make_hub: Callable[..., Hub], clients: Callable[..., Clients], tmp_path: Path
) -> None:
    """New handshakes use the new one; a bad one keeps the old one and raises an alarm, until a good one comes."""
    hub = make_hub("tcp", "tls", "http")
    for key in ("cert", "key"):
        hub.settings[f"listeners.tls.{key}_file"] = str(hub.data_dir / f"{key}.pem")
    new_certificate(hub, tmp_path / "first")
    hub.start()
    before = shown_by(hub)
    client = clients(hub, "tls")(5)
    assert hub.process is not None

    (hub.data_dir / "cert.pem").write_text("no certificate")
    os.kill(hub.process.pid, signal.SIGHUP)
    until(lambda: "certificate_bad" in alarms(hub), "the alarm is raised")
    assert shown_by(hub) == before
    client.ping()

    new_certificate(hub, tmp_path / "second")
    os.kill(hub.process.pid, signal.SIGHUP)
    until(lambda: shown_by(hub) != before, "the new certificate is in use")
    client.ping()
    assert "certificate_bad" not in alarms(hub)
    clients(hub)(4).ping()


def test_reload_applies_what_may_change_and_names_the_rest(
    make_hub: Callable[..., Hub], clients: Callable[..., Clients]
) -> None:
    """By the command and by SIGHUP; who is connected stays; the file, the environment and --set of the running process count."""
    hub = make_hub("tcp", "http")
    hub.settings["mqtt.max_inflight"] = "5"
    hub.start()
    client = clients(hub)(5)
    file = hub.data_dir / "iothub.toml"

    file.write_text('[mqtt]\nmax_inflight = 9\nsys_interval = "5s"\n[listeners.tcp]\ndeny = ["127.0.0.1"]\n')
    shown = hub.rows("config", "reload")

    assert [(row["name"], row["reload"]) for row in shown] == [
        ("mqtt.sys_interval", "restart"),
        ("listeners.tcp.deny", "now"),
    ]
    client.ping()
    assert is_turned_away(hub)
    assert "certificates" not in hub.log

    file.write_text("")
    assert hub.process is not None
    os.kill(hub.process.pid, signal.SIGHUP)
    until(lambda: hub.log.count("configuration reloaded") == 2, "the signal is heard")
    clients(hub)(5).ping()


def test_refused_configuration_changes_nothing_and_says_so(
    make_hub: Callable[..., Hub], clients: Callable[..., Clients]
) -> None:
    """In the exit code, the log, the metric and an alarm, each mistake by name; the next good one ends that."""
    hub = make_hub("tcp", "http")
    hub.start()
    file = hub.data_dir / "iothub.toml"
    file.write_text('[mqtt]\nmax_inflght = 9\n[listeners.tcp]\ndeny = ["127.0.0.1"]\n[log]\nlevel = "loud"\n')

    refused = hub.run("config", "reload", check=False)

    assert refused.returncode == 2
    assert "line 2: unknown setting 'mqtt.max_inflght'" in refused.stderr
    assert "line 6: log.level" in refused.stderr
    clients(hub)(5).ping()
    assert hub.log.count("configuration refused") == 2
    assert "config_refused" in page(hub, "status")  # commands cannot read the file either
    assert "iothub_config_last_reload_successful 0" in page(hub, "metrics")

    file.write_text("")
    assert hub.run("config", "reload").returncode == 0
    assert "config_refused" not in alarms(hub)
    assert "iothub_config_last_reload_successful 1" in page(hub, "metrics")


def page(hub: Hub, name: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/{name}", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def is_turned_away(hub: Hub) -> bool:
    """Is a new connection closed before anything is said? It may be reset before it is made."""
    try:
        with socket.create_connection(("127.0.0.1", hub.ports["tcp"]), timeout=PATIENCE_S) as connection:
            return connection.recv(1) == b""
    except ConnectionResetError:
        return True
