"""A damaged message in a queue of a running hub: its session gets all others, and the hub says so."""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path

from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

SESSION = "sleeper"
SPOILT = 3


def publish(client: RawClient, number: int) -> None:
    answer = client.publish("to/sleeper", b"%d" % number, 1, number)
    assert answer is not None
    assert answer.code == 0


def spoil(path: Path) -> None:
    """Give the message at `SPOILT` the version of another program."""
    with closing(sqlite3.connect(path)) as connection, connection:
        where = "id = (SELECT body FROM ref WHERE position = ?)"
        (body,) = connection.execute(f"SELECT b FROM body WHERE {where}", (SPOILT,)).fetchone()
        connection.execute(f"UPDATE body SET b = ? WHERE {where}", (b"\7" + body[1:], SPOILT))


def alarms(hub: Hub, event: str) -> list[str]:
    """Return the subjects of the alarms that were raised, or cleared, by this log."""
    lines = [json.loads(line) for line in hub.log.splitlines() if f'"{event}"' in line]
    return [line["subject"] for line in lines if line["alarm"] == "record_damaged"]


def received(client: RawClient) -> bytes:
    found = client.expect(PUBLISH)
    client.ack(PUBACK, found.packet_id)
    return found.payload


def test_damaged_message_in_a_queue_is_passed_over(hub: Hub) -> None:
    """All others arrive; an alarm and the log name it, and it counts as dropped."""
    hub.ports["http"] = free_port()
    hub.start()
    with RawClient(hub.ports["tcp"]) as sleeper, RawClient(hub.ports["tcp"]) as publisher:
        sleeper.connect(SESSION, "acme/dev1", clean=False)
        sleeper.subscribe(("to/sleeper", 1))
        sleeper.disconnect()
        publisher.connect("publisher", "acme/dev2")
        for number in range(1, 6):
            publish(publisher, number)
    assert hub.stop() == 0
    spoil(hub.data_dir / "queues.db")
    hub.start()

    with RawClient(hub.ports["tcp"]) as sleeper:
        assert sleeper.connect(SESSION, "acme/dev1", clean=False).session_present
        assert [received(sleeper) for _ in range(4)] == [b"1", b"2", b"4", b"5"]

    assert alarms(hub, "alarm raised") == ["queues"]
    assert "damaged record skipped" in hub.log
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=PATIENCE_S) as answer:
        assert 'iothub_messages_dropped_total{reason="store_failed"} 1' in (text := answer.read().decode())
        assert 'iothub_damaged_records_total{store="queues"} 1' in text
    assert "Traceback" not in hub.log
