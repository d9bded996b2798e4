"""`iothub explain` beside a real hub: the step that decides, and nothing that counts as an attempt."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub

MakeHub = Callable[..., Hub]
MakeClients = Callable[..., Clients]


def explained(hub: Hub, *words: str) -> tuple[int, Any]:
    ended = hub.run("-o", "json", "explain", *words, check=False)
    return ended.returncode, json.loads(ended.stdout)


def test_explanation_says_what_clients_get(make_hub: MakeHub, clients: MakeClients) -> None:
    hub = make_hub()
    hub.start()
    join = clients(hub)
    join(5, "taken", username="acme/dev1").nothing()

    code, said = explained(hub, "connect", "acme/dev1")
    assert (code, said["is_allowed"], len(said["hubs"])) == (0, True, 1)
    code, said = explained(hub, "connect", "acme/nobody")
    assert (code, said["deciding"]["rule"]) == (5, "unknown_device")
    code, said = explained(hub, "connect", "acme/dev2", "--client-id", "taken")
    assert (code, said["deciding"]["rule"]) == (5, "client_id_of_another_device")
    hub.run("acl", "deny", "acme", "dev1", "publish", "secret/#")
    code, said = explained(hub, "publish", "acme/dev1", "secret/plan")
    assert (code, said["deciding"]["rule"]) == (5, "denied")
    assert explained(hub, "subscribe", "acme/dev1", "rooms/#")[0] == 0
    assert hub.rows("rejected", "acme") == []
