"""Persistent sessions of a control harness, for tests of the session service."""

from __future__ import annotations

from typing import Any

from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.in_process.control_harness import Harness

WILL = ("w/c", b"gone", 1, False)
KEPT = [(names.SESSION_EXPIRY, 100)]


def keep(harness: Harness, client_id: str = "c", **options: Any) -> Client:
    """Connect with a session that outlives its connection by 100 s."""
    return harness.join(client_id, props=KEPT, **{"clean": False} | options)


def payloads(client: Client) -> list[bytes]:
    return [packet.payload for packet in client.fence()]


def keen_on_wills(harness: Harness) -> None:
    """Somebody who is away is subscribed to Wills, so that these go through the store."""
    client = harness.join("away", version=4, username="acme/dev2", clean=False)
    client.subscribe(("w/#", 1))
    client.disconnect()
    harness.journal.words()
