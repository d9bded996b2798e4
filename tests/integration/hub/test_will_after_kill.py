"""A hub is killed: the next one sends the Wills of the clients that were connected to it."""

from __future__ import annotations

from pathlib import Path

from tests.support.clients.backlog import PERSISTENT
from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.datadirs import fresh_hub

WILL_EXPIRY = [(0x02, 3600)]


def test_will_of_a_client_of_a_killed_hub_is_sent_by_the_next_one(tmp_path: Path) -> None:
    """Once, to a subscriber that was away, with the interval after which it is of no use."""
    hub = fresh_hub(tmp_path)
    hub.start()
    port = hub.ports["tcp"]
    try:
        with RawClient(port, 5) as watcher:
            watcher.connect("watcher", "acme/dev2", clean=False, props=PERSISTENT)
            watcher.subscribe(("w/#", 1))
            watcher.disconnect()
        client = RawClient(port, 5)
        will = ("w/c", b"gone", 1, False)
        client.connect("c", "acme/dev1", clean=False, props=PERSISTENT, will=will, will_props=WILL_EXPIRY)

        hub.kill()
        client.close()
        hub.start()

        with RawClient(port, 5) as watcher:
            assert watcher.connect("watcher", "acme/dev2", clean=False, props=PERSISTENT).session_present
            found = watcher.expect(PUBLISH, 5)
            watcher.ack(PUBACK, found.packet_id)
            watcher.ping()
            assert watcher.received == []
        assert (found.topic, found.payload) == ("w/c", b"gone")
        left = found.property(0x02)
        assert isinstance(left, int)
        assert 3500 < left <= 3600
    finally:
        hub.close()
