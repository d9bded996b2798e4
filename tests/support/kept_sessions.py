"""Persistent sessions of a control harness, for tests of the session service."""

from __future__ import annotations

from typing import Any

from tests.support import property_names as names
from tests.support.control_harness import Harness
from tests.support.party import Guest

WILL = ("w/c", b"gone", 1, False)
KEPT = [(names.SESSION_EXPIRY, 100)]


def keep(harness: Harness, client_id: str = "c", **options: Any) -> Guest:
    """Connect with a session that outlives its connection by 100 s."""
    return harness.join(client_id, props=KEPT, **{"clean": False} | options)


def payloads(guest: Guest) -> list[bytes]:
    return [packet.payload for packet in guest.fence()]


def keen_on_wills(harness: Harness) -> None:
    """Somebody who is away is subscribed to Wills, so that these go through the store."""
    guest = harness.join("away", version=4, username="acme/dev2", clean=False)
    guest.subscribe(("w/#", 1))
    guest.disconnect()
    harness.journal.words()
