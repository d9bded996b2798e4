"""Damaged records in the stores of a hub that starts over them: passed over, counted, and named by one alarm for each store."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from urllib.request import urlopen

from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port

DAMAGED = 4


def counted(hub: Hub) -> dict[str, int]:
    with urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = (line.split() for line in lines if line.startswith("iothub_damaged_records_total{"))
    return {name.split('"')[1]: int(value) for name, value in found}


def named(hub: Hub) -> list[str]:
    """Return the stores whose alarm was raised by this log."""
    lines = [json.loads(line) for line in hub.log.splitlines() if '"alarm raised"' in line]
    return [line["subject"] for line in lines if line["alarm"] == "record_damaged"]


def damage(hub: Hub, file: str, statement: str, *arguments: object) -> None:
    with closing(sqlite3.connect(hub.data_dir / file)) as connection, connection:
        connection.execute(statement, arguments)


def test_damaged_events_are_counted_and_passed_over(hub: Hub) -> None:
    """One of another version is as damaged as one that is no text; `state verify` ends with 1."""
    hub.ports["http"] = free_port()
    hub.start()
    with RawClient(hub.ports["tcp"]) as client:
        client.connect("s", "acme/dev1", clean=False)
        for number in range(DAMAGED + 2):
            client.subscribe((f"t/{number}", 1))
    assert hub.stop() == 0
    some = (
        "SELECT offset FROM session_event WHERE CAST(value AS TEXT) LIKE '%session.subscribed%' ORDER BY offset LIMIT ?"
    )
    damage(hub, "events.db", f"UPDATE session_event SET value = x'ff' WHERE offset IN ({some})", DAMAGED - 1)
    newer = "CAST(replace(value, '\"v\":1', '\"v\":9') AS BLOB)"
    damage(hub, "events.db", f"UPDATE session_event SET value = {newer} WHERE offset IN ({some})", 1)
    (hub.data_dir / "state.db").unlink()  # so that the whole log is folded
    hub.start()

    assert counted(hub) == {"events": DAMAGED, "state": 0, "retained": 0, "queues": 0}
    assert named(hub) == ["events"]
    assert hub.log.count("damaged record skipped") == DAMAGED
    shown = json.loads(hub.run("-o", "json", "session", "show", "acme", "s").stdout)
    assert [each["name"] for each in shown["subscriptions"]] == [f"t/{DAMAGED}", f"t/{DAMAGED + 1}"]
    assert hub.run("state", "verify", check=False).returncode == 1


def test_damaged_state_is_rebuilt_from_the_log(hub: Hub) -> None:
    """It is counted; nothing is lost, so there is no alarm."""
    hub.ports["http"] = free_port()
    hub.start()
    with RawClient(hub.ports["tcp"]) as client:
        client.connect("s", "acme/dev1", clean=False)
        client.subscribe(("t/1", 1))
    assert hub.stop() == 0
    damage(hub, "state.db", "UPDATE session SET record = x'ff'")
    hub.start()

    assert counted(hub) == {"events": 0, "state": 1, "retained": 0, "queues": 0}
    assert named(hub) == []
    assert "damaged record rebuilt from the log" in hub.log
    with RawClient(hub.ports["tcp"]) as client:
        assert client.connect("s", "acme/dev1", clean=False).session_present


def test_damaged_retained_message_is_passed_over_until_it_is_replaced(hub: Hub) -> None:
    """The others come."""
    hub.ports["http"] = free_port()
    hub.start()
    with RawClient(hub.ports["tcp"]) as publisher:
        publisher.connect("publisher", "acme/dev2")
        for number, topic in enumerate(("kept/one", "kept/two", "kept/three"), 1):
            publisher.publish(topic, topic.encode(), 1, number, retain=True)
    assert hub.stop() == 0
    spoilt = "CAST(x'ff' || substr(body, 2) AS BLOB)"
    damage(hub, "retained.db", f"UPDATE retained SET body = {spoilt} WHERE topic != CAST('kept/two' AS BLOB)")
    hub.start()

    with RawClient(hub.ports["tcp"]) as client:
        client.connect("reader", "acme/dev1")
        client.subscribe(("kept/#", 1))
        assert received(client) == b"kept/two"
        client.expect_nothing(0.5)
        assert (counted(hub)["retained"], named(hub)) == (2, ["retained"])

        client.publish("kept/one", b"new", 1, 9, retain=True)
        assert received(client) == b"new"
        hub.run("retain", "delete", "acme", "kept/three", "--yes")
        assert [row["name"] for row in hub.rows("retain", "list", "acme")] == ["kept/one", "kept/two"]
    assert "Traceback" not in hub.log


def received(client: RawClient) -> bytes:
    found = client.expect(PUBLISH)
    client.ack(PUBACK, found.packet_id)
    return found.payload
