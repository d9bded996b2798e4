"""A damaged page in `queues.db`: the file is set aside, the rows before the page are still there, and an alarm says so."""

from __future__ import annotations

import json
import sqlite3
import stat
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.clients.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

PAGE_BYTES = 8192
MESSAGES = 120
SESSIONS = ("sleeper-a", "sleeper-b")


def payload(session: str, number: int) -> bytes:
    return f"<{session} {number:04d}>".encode().ljust(1024, b"x")


def sleep_with_messages(hub: Hub) -> None:
    """Two offline sessions with 120 messages each, and one Retained Message."""
    port = hub.ports["tcp"]
    for name in SESSIONS:
        with RawClient(port) as client:
            client.connect(name, "acme/dev1", clean=False)
            client.subscribe((f"to/{name}", 1))
            client.disconnect()
    with RawClient(port) as client:
        client.connect("publisher", "acme/dev2")
        client.publish("kept/topic", b"kept", 1, 1, retain=True)
        for number in range(1, MESSAGES + 1):
            for name in SESSIONS:
                client.publish(f"to/{name}", payload(name, number), 1, number)


def damage(path: Path, content: bytes) -> None:
    """Overwrite the page that holds `content`."""
    data = bytearray(path.read_bytes())
    at = data.index(content) // PAGE_BYTES * PAGE_BYTES
    data[at : at + PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(data)


def collect(hub: Hub, name: str) -> tuple[bool, list[bytes]]:
    """Return whether the session is there, and what its queue has: everything before a message that is published now."""
    got: list[bytes] = []
    with RawClient(hub.ports["tcp"]) as client:
        is_present = client.connect(name, "acme/dev1", clean=False).session_present
        client.subscribe((f"to/{name}", 1))
        client.publish(f"to/{name}", b"end", 1, 1)
        while got[-1:] != [b"end"]:
            found = client.expect(PUBLISH)
            got.append(found.payload)
            client.ack(PUBACK, found.packet_id)
        client.fence()
    return is_present, got[:-1]


def test_a_corrupt_page_costs_what_lies_behind_it(hub: Hub) -> None:
    """The hub starts with an alarm, keeps the damaged file and every message before the page, and invents none.

    What another queue has is before the page or behind it, as the file has them.
    """
    hub.ports["http"] = free_port()
    hub.start()
    sleep_with_messages(hub)
    assert hub.stop() == 0
    damage(hub.data_dir / "queues.db", payload("sleeper-a", 60)[:40])
    files = {path.name for path in hub.data_dir.iterdir()}

    hub.start()

    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=PATIENCE_S) as answer:
        metrics = answer.read().decode()
    assert 'iothub_alarms_active{severity="critical"} 1' in metrics
    assert "alarm raised" in hub.log
    assert "Traceback" not in hub.log
    aside = {path.name for path in hub.data_dir.iterdir()} - files
    assert any(name.startswith("queues.db") and not name.endswith(("-wal", "-shm")) for name in aside), aside
    for name in SESSIONS:
        is_present, got = collect(hub, name)
        assert is_present
        assert got == [payload(name, number) for number in range(1, len(got) + 1)], "in order, each once, no gap"
        assert name != "sleeper-a" or 60 - PAGE_BYTES // 1024 <= len(got) <= 60
    with RawClient(hub.ports["tcp"]) as client:
        client.connect("late", "acme/dev2")
        client.subscribe(("kept/#", 0))
        assert client.expect(PUBLISH).payload == b"kept"


def root(path: Path, name: str) -> int:
    """The page of a table that everything else of it hangs on."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        return int(found[0])


def raised(hub: Hub) -> dict[str, str]:
    """The alarms of this log: what each says, by name."""
    lines = [json.loads(line) for line in hub.log.splitlines() if '"alarm raised"' in line]
    return {line["alarm"]: line["detail"] for line in lines}


def damage_root(path: Path, name: str) -> None:
    page = root(path, name) if name else 1
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xa5" * PAGE_BYTES)


@pytest.mark.parametrize("name", ["queue", "queue_tenant"], ids=["queues", "index"])
def test_a_page_that_can_be_done_without_costs_no_session_and_no_message(hub: Hub, name: str) -> None:
    """The table of the queues, an index: sessions go on, with every message, and get new ones.

    The hub dies once more afterwards: what was rebuilt is durable, and what was acknowledged since.
    """
    hub.start()
    sleep_with_messages(hub)
    assert hub.stop() == 0
    damage_root(hub.data_dir / "queues.db", name)

    hub.start()

    alarms = raised(hub)
    assert "copied" in alarms["store_corrupt"]
    assert ("store_lost" in alarms) is (name == "queue")
    if name == "queue":
        assert (
            "the queues of 2 of 2 sessions were lost with the damaged part of queues.db or of the folder queues.journal"
            in alarms["store_lost"]
        )
        assert f"{2 * MESSAGES} saved messages are delivered" in alarms["store_lost"]
    with RawClient(hub.ports["tcp"], 5) as client:
        client.connect("publisher", "acme/dev2")
        assert client.publish(f"to/{SESSIONS[0]}", b"late", 1, 1).code == 0
    hub.kill()
    hub.start()
    sent = [payload(SESSIONS[0], number) for number in range(1, MESSAGES + 1)]
    assert collect(hub, SESSIONS[0]) == (True, [*sent, b"late"])
    assert collect(hub, SESSIONS[0]) == (True, [])
    assert "Traceback" not in hub.log


@pytest.mark.parametrize(("name", "is_present"), [("body", True), ("", False)], ids=["bodies", "schema"])
def test_a_page_that_everything_hangs_on_costs_every_message(hub: Hub, name: str, is_present: bool) -> None:
    """The page above the bodies costs no session; without the first page nothing of the file can be read, and the sessions end."""
    hub.start()
    sleep_with_messages(hub)
    assert hub.stop() == 0
    damage_root(hub.data_dir / "queues.db", name)

    hub.start()

    assert "rows behind the first error are lost" in raised(hub)["store_corrupt"]
    assert collect(hub, SESSIONS[0]) == (is_present, [])
    assert "Traceback" not in hub.log


def test_what_was_under_way_is_finished_when_its_queue_was_rebuilt(hub: Hub) -> None:
    """One QoS 2 message was received and not released, one was sent and not received: PUBREL for the one, PUBLISH with DUP 1 for the other.

    Each has the Packet Identifier that it had before; a message published since has another one.
    """
    hub.start()
    with RawClient(hub.ports["tcp"]) as reader, RawClient(hub.ports["tcp"]) as publisher:
        reader.connect("reader", "acme/dev1", clean=False)
        reader.subscribe(("q/#", 2))
        publisher.connect("publisher", "acme/dev2")
        publisher.publish("q/1", b"received", 2, 1)
        received = reader.expect(PUBLISH)
        reader.ack(PUBREC, received.packet_id)
        reader.expect(PUBREL)
        publisher.publish("q/2", b"sent", 2, 2)
        sent = reader.expect(PUBLISH)
        hub.kill()
    queues = hub.data_dir / "queues.db"
    with closing(sqlite3.connect(queues)) as connection:  # what the log has is put into its place
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage_root(queues, "queue")

    hub.start()

    with RawClient(hub.ports["tcp"]) as reader, RawClient(hub.ports["tcp"]) as publisher:
        assert reader.connect("reader", "acme/dev1", clean=False).session_present
        assert reader.expect(PUBREL).packet_id == received.packet_id
        reader.ack(PUBCOMP, received.packet_id)
        again = reader.expect(PUBLISH)
        assert (again.payload, again.packet_id, again.dup) == (b"sent", sent.packet_id, True)
        reader.ack(PUBREC, again.packet_id)
        reader.expect(PUBREL)
        reader.ack(PUBCOMP, again.packet_id)
        publisher.connect("publisher", "acme/dev2")
        publisher.publish("q/3", b"new", 2, 3)
        new = reader.expect(PUBLISH)
        assert (new.payload, new.dup) == (b"new", False)
        assert new.packet_id not in {received.packet_id, sent.packet_id}


@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "missing"])
def test_a_store_that_has_gone_is_told(hub: Hub, is_empty: bool) -> None:
    """A hub that finds nothing where messages were must not pass it over: an alarm names the file; readers hear Session Present 0."""
    hub.ports["http"] = free_port()
    hub.start()
    sleep_with_messages(hub)
    assert hub.stop() == 0
    for path in hub.data_dir.glob("queues.db*"):
        path.unlink()
    if is_empty:
        (hub.data_dir / "queues.db").touch()

    hub.start()

    how = "empty" if is_empty else "missing"
    assert f"queues.db is {how} although a hub has worked here" in raised(hub)["store_lost"]
    with RawClient(hub.ports["tcp"], 5) as client:
        client.connect("publisher", "acme/dev2")
        assert (
            client.publish(f"to/{SESSIONS[0]}", b"late", 1, 1).code == 0x10
        )  # nobody is promised what is stored nowhere
    assert collect(hub, SESSIONS[0]) == (False, [])
    assert stat.S_IMODE((hub.data_dir / "queues.db").stat().st_mode) == 0o600
