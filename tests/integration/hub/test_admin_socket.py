"""`iothub.hub.admin_socket` in a real hub: sessions, queues and retained messages are told while they change, whole, and in order."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Callable

from iothub.config.datadir import DataDir
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub

PAYLOAD = bytes(range(256)) * 3000


def shown(hub: Hub, *words: str) -> dict[str, object]:
    return dict(json.loads(hub.run("-o", "json", *words).stdout))


def test_hub_tells_of_sessions_queues_and_retained_messages(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    hub = make_hub()
    hub.start()
    join = clients(hub)
    away = join(5, "away", keep=True)
    away.subscribe(("rooms/#", 1), ("$share/g/garden", 1))
    away.disconnect()
    live = join(5, "live", device="dev2", keep=True)
    join(5, "brief").subscribe(("none", 0))
    for number in range(3):
        live.publish(f"rooms/{number}", b"%d" % number, 1, number + 1, retain=number == 0)
    live.publish("rooms/big", PAYLOAD, 1, 9, retain=True)

    sessions = {row["name"]: row for row in hub.rows("session", "list", "acme")}
    assert list(sessions) == ["away", "live"], "what ends with its connection is not listed"
    assert [row["is_connected"] for row in sessions.values()] == [False, True]
    assert sessions["away"]["queued_messages"] == 4
    assert shown(hub, "session", "show", "acme", "away")["disconnect_reason"] == "client"
    assert [row["name"] for row in hub.rows("session", "list", "acme", "--after", "away")] == ["live"]

    assert {row["name"]: row["messages"] for row in hub.rows("queue", "list", "acme")} == {"away": 4, "live": 0}
    oldest = shown(hub, "queue", "show", "acme", "away")["oldest"]
    assert [message["payload_bytes"] for message in oldest] == [1, 1, 1, len(PAYLOAD)]  # type: ignore[attr-defined]

    assert [row["name"] for row in hub.rows("retain", "list", "acme", "--filter", "rooms/+")] == [
        "rooms/0",
        "rooms/big",
    ]
    assert shown(hub, "retain", "show", "acme", "rooms/big")["payload_bytes"] == len(PAYLOAD)

    hub.run("session", "discard", "acme", "away", "--yes")
    assert [row["name"] for row in hub.rows("queue", "list", "acme")] == ["live"]


def test_socket_of_a_killed_hub_is_in_nobodys_way(make_hub: Callable[..., Hub]) -> None:
    """It is readable by the hub's user alone, and there when a client gets in; a clean stop removes it."""
    hub = make_hub()
    hub.start()
    path = DataDir(hub.data_dir).admin_socket
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    hub.kill()

    refused = hub.run("retain", "list", "acme", check=False)
    assert (refused.returncode, "no hub runs in" in refused.stderr) == (7, True)
    hub.start()
    assert hub.rows("retain", "list", "acme") == []
    assert hub.stop() == 0
    assert not path.exists()


def test_asker_that_says_nothing_keeps_no_hub_from_stopping(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()
    hub.start()
    with socket.socket(socket.AF_UNIX) as silent, DataDir(hub.data_dir).admin_address() as address:
        silent.connect(address)

        assert hub.stop() == 0
