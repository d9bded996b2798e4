"""A message of a newer program in a queue of a running hub: its session stands still before it until a purge, and the hub says so."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.support.hub import Hub
from tests.support.packets import PUBACK, PUBLISH
from tests.support.raw import RawClient

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


def told(hub: Hub, event: str) -> list[str]:
    """Return the subjects of the alarms that were raised, or cleared, by this log."""
    lines = [json.loads(line) for line in hub.log.splitlines() if f'"{event}"' in line]
    return [line["subject"] for line in lines if line["alarm"] == "store_corrupt"]


def received(client: RawClient) -> bytes:
    found = client.expect(PUBLISH)
    client.ack(PUBACK, found.packet_id)
    return found.payload


def test_session_stands_still_before_a_message_of_a_newer_program(hub: Hub) -> None:
    """Publishers are answered meanwhile, one alarm says it all, and the session goes on behind a purge without a new connection."""
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

    with RawClient(hub.ports["tcp"]) as sleeper, RawClient(hub.ports["tcp"]) as publisher:
        publisher.connect("publisher", "acme/dev2")
        assert sleeper.connect(SESSION, "acme/dev1", clean=False).session_present
        assert [received(sleeper) for _ in range(2)] == [b"1", b"2"]
        publish(publisher, 6)
        sleeper.expect_nothing(1.0)
        (subject,) = told(hub, "alarm raised")
        assert (subject[:6], subject[-11:]) == ("queue_", "_unreadable")
        for noun in ("queue", "session"):
            shown = json.loads(hub.run("-o", "json", noun, "show", "acme", SESSION).stdout)
            assert shown["unreadable"]["position"] == SPOILT

        hub.run("queue", "purge", "acme", SESSION, "--yes")
        publish(publisher, 7)

        assert received(sleeper) == b"7"
        assert told(hub, "alarm cleared") == [subject]
        assert len(told(hub, "alarm raised")) == 1
    assert "Traceback" not in hub.log
