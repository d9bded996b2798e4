"""A damaged page in `queues.db`: set aside, told, and everything that can be read is still there."""

from __future__ import annotations

import stat
import urllib.request
from pathlib import Path

import pytest

from tests.support.hub import Hub, free_port
from tests.support.packets import PUBACK, PUBLISH
from tests.support.raw import RawClient

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
    got: list[bytes] = []
    with RawClient(hub.ports["tcp"], timeout=2.0) as client:
        is_present = client.connect(name, "acme/dev1", clean=False).session_present
        try:
            while True:
                found = client.expect(PUBLISH)
                got.append(found.payload)
                client.ack(PUBACK, found.packet_id)
        except TimeoutError:
            return is_present, got


def test_a_corrupt_page_costs_only_what_was_on_it(hub: Hub) -> None:
    """The hub starts with an alarm, keeps the damaged file, loses at most the page's few messages and invents none."""
    hub.ports["http"] = free_port()
    hub.start()
    sleep_with_messages(hub)
    assert hub.stop() == 0
    damage(hub.data_dir / "queues.db", payload("sleeper-a", 60)[:40])
    files = {path.name for path in hub.data_dir.iterdir()}

    hub.start()

    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=5) as answer:
        metrics = answer.read().decode()
    assert 'iothub_alarms_active{severity="critical"} 1' in metrics
    assert "alarm raised" in hub.log
    assert "Traceback" not in hub.log
    aside = {path.name for path in hub.data_dir.iterdir()} - files
    assert any(name.startswith("queues.db") and not name.endswith(("-wal", "-shm")) for name in aside), aside
    lost = 0
    for name in SESSIONS:
        is_present, got = collect(hub, name)
        sent = [payload(name, number) for number in range(1, MESSAGES + 1)]
        assert is_present
        assert got == [one for one in sent if one in set(got)], "in order, each once, nothing invented"
        lost += MESSAGES - len(got)
    assert 0 < lost <= PAGE_BYTES // 1024
    with RawClient(hub.ports["tcp"]) as client:
        client.connect("late", "acme/dev2")
        client.subscribe(("kept/#", 0))
        assert client.expect(PUBLISH).payload == b"kept"


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

    (alarm,) = [line for line in hub.log.splitlines() if "alarm raised" in line]
    assert f"queues.db is {'empty' if is_empty else 'missing'} although a hub has worked here" in alarm
    with RawClient(hub.ports["tcp"], 5) as client:
        client.connect("publisher", "acme/dev2")
        assert (
            client.publish(f"to/{SESSIONS[0]}", b"late", 1, 1).code == 0x10
        )  # nobody is promised what is stored nowhere
    assert collect(hub, SESSIONS[0]) == (False, [])
    assert stat.S_IMODE((hub.data_dir / "queues.db").stat().st_mode) == 0o600
