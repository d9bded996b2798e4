"""A hub with a journal that is killed: nothing acknowledged is lost, whatever the setting is then; a backup has what is in the journal."""

from __future__ import annotations

from pathlib import Path

from tests.support.clients.packets import PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub

QUEUED = 30


def publish(port: int, first: int) -> None:
    with RawClient(port) as publisher:
        publisher.connect("publisher", "acme/dev2")
        for number in range(first, first + QUEUED):
            publisher.publish("to/sleeper", str(number).encode(), 1 + number % 2, number)


def received(port: int, count: int) -> list[int]:
    """What the sleeper gets; it acknowledges nothing."""
    with RawClient(port) as sleeper:
        assert sleeper.connect("sleeper", "acme/dev1", clean=False).session_present
        got = [int(sleeper.expect(PUBLISH).payload) for _ in range(count)]
        sleeper.fence()
    return got


def test_what_is_in_the_journal_outlives_the_hub(tmp_path: Path) -> None:
    """Killed with messages in the journal, and started without one."""
    hub = fresh_hub(tmp_path, queues__journal="true", mqtt__max_inflight="200")
    everything = list(range(1, 1 + 2 * QUEUED))
    try:
        hub.start()
        port = hub.ports["tcp"]
        with RawClient(port) as sleeper:
            sleeper.connect("sleeper", "acme/dev1", clean=False)
            sleeper.subscribe(("to/sleeper", 2))
            sleeper.disconnect()
        publish(port, 1)
        hub.run("backup", str(tmp_path / "backup"))
        publish(port, 1 + QUEUED)
        hub.kill()
        assert list((hub.data_dir / "queues.journal").iterdir())
        hub.settings["queues.journal"] = "false"
        hub.start()
        assert received(port, 2 * QUEUED) == everything
        assert hub.stop() == 0
        assert not list((hub.data_dir / "queues.journal").iterdir())
    finally:
        hub.close()
    _assert_backup_has_first(hub, tmp_path)


def _assert_backup_has_first(hub: Hub, tmp_path: Path) -> None:
    assert list((tmp_path / "backup" / "queues.journal").iterdir())
    hub.run("restore", str(tmp_path / "backup"), "--replace")
    try:
        hub.start()
        assert received(hub.ports["tcp"], QUEUED) == list(range(1, 1 + QUEUED))
    finally:
        hub.close()
