"""Records of a newer program in the files of a running hub: what can be read arrives, and the hub says what cannot.

In a queue it is passed over as a damaged one; a retained message is kept until it is replaced or deleted.
"""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path

from tests.support.hub import Hub, free_port
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

    assert told(hub, "alarm raised") == ["queue_records_corrupt"]
    assert "damaged records are skipped" in hub.log
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=5) as answer:
        assert 'iothub_messages_dropped_total{reason="store_failed"} 1' in answer.read().decode()
    assert "Traceback" not in hub.log


def test_stray_event_of_a_newer_program_is_left_out_by_a_setting(hub: Hub) -> None:
    """Without it no start goes past it; with it the sessions are there, those behind it too, and an alarm says what is left out."""
    hub.start()
    with RawClient(hub.ports["tcp"]) as sleeper:
        sleeper.connect(SESSION, "acme/dev1", clean=False)
        sleeper.subscribe(("to/sleeper", 1))
    assert hub.stop() == 0
    with closing(sqlite3.connect(hub.data_dir / "events.db")) as connection, connection:
        newest = "FROM session_event ORDER BY offset DESC LIMIT 1"
        newer = "CAST(replace(value, '\"v\":1', '\"v\":9') AS BLOB)"
        stray = connection.execute(f"INSERT INTO session_event (key, value) SELECT key, {newer} {newest}").lastrowid
        connection.execute(
            f"INSERT INTO session_event (key, value) SELECT key, value FROM session_event WHERE offset = {stray} - 1"
        )
    place = f"0:{stray}"

    refused = hub.start_impatiently()
    assert refused.returncode == 4
    assert f'events.left_out = ["{place}"]' in refused.stderr
    hub.environment = {"IOTHUB_EVENTS__LEFT_OUT": place}
    hub.start()

    assert told(hub, "alarm raised") == ["event_corrupt"]
    assert "left out by events.left_out" in hub.log
    with RawClient(hub.ports["tcp"]) as sleeper:
        assert sleeper.connect(SESSION, "acme/dev1", clean=False).session_present
    assert hub.stop() == 0
    hub.start()
    assert hub.stop() == 0


def test_retained_message_of_a_newer_program_is_named_and_kept(hub: Hub) -> None:
    """The others come; what is published in its place ends the alarm."""
    hub.start()
    with RawClient(hub.ports["tcp"]) as publisher:
        publisher.connect("publisher", "acme/dev2")
        for number, topic in enumerate(("kept/one", "kept/two"), 1):
            publisher.publish(topic, topic.encode(), 1, number, retain=True)
    assert hub.stop() == 0
    with closing(sqlite3.connect(hub.data_dir / "retained.db")) as connection, connection:
        connection.execute(
            "UPDATE retained SET body = CAST(x'07' || substr(body, 2) AS BLOB) WHERE topic = x'6b6570742f6f6e65'"
        )
    hub.start()

    with RawClient(hub.ports["tcp"]) as client:
        client.connect("reader", "acme/dev1")
        client.subscribe(("kept/#", 1))
        assert received(client) == b"kept/two"
        client.expect_nothing(0.5)
        assert told(hub, "alarm raised") == ["retained_unreadable"]
        assert "a retained message cannot be read, nobody gets it" in hub.log
        assert [row["name"] for row in hub.rows("retain", "list", "acme")] == ["kept/one", "kept/two"]

        client.publish("kept/one", b"new", 1, 9, retain=True)
        assert received(client) == b"new"
        assert told(hub, "alarm cleared") == ["retained_unreadable"]
    assert "Traceback" not in hub.log
