"""`iothub backup` under load, and what a hub on the restored directory has: all that was acknowledged before the backup began."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from iothub.backup import making
from iothub.backup.making import Order
from iothub.base.clock import SystemClock
from iothub.base.errors import UnavailableError
from iothub.cli.backup import RunningHub
from iothub.cli.local_hub import LocalHub
from iothub.config.datadir import DataDir
from iothub.records.admin_commands import Verb
from tests.support.clients import property_names
from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import ClosedError, RawClient
from tests.support.hubs.hub import Hub

USERNAME = "acme/dev1"
KEPT = [(property_names.SESSION_EXPIRY, 3600)]
READERS = ("reader-1", "reader-2", "reader-3")
PUBLISHERS = 3
LOAD_S = 1.5
MOST_PASSERS = 300  # each of them gets a copy of every message
SECONDS = 20.0  # for a hub on a machine that is busy
BAD_WORDS = ("store_lost", "store_corrupt", "queue_lost", "checkpoint_unused", "event_log_lost", '"error"')


@dataclass
class Promises:
    """What the hub has acknowledged: the last number of each topic, and sessions."""

    messages: dict[str, int] = field(default_factory=dict)
    sessions: list[str] = field(default_factory=list)

    def copy(self) -> Promises:
        return Promises(dict(self.messages), list(self.sessions))


class Load:
    """Publishers at QoS 1, retained messages, and sessions that begin and are left, until told to end."""

    def __init__(self, hub: Hub) -> None:
        self.port = hub.ports["tcp"]
        self.acknowledged = Promises()
        self.published: dict[str, int] = {}
        self._is_over = threading.Event()

    def end(self) -> None:
        self._is_over.set()

    def publish(self, name: str) -> None:
        """One message after the other on `load/NAME`; every third is retained on `state/NAME`, too."""
        with RawClient(self.port, 5, timeout=SECONDS) as client:
            client.connect(name, USERNAME)
            number = 0
            while not self._is_over.is_set():
                number += 1
                for topic, retain in ((f"load/{name}", False), (f"state/{name}", True))[: 1 + (number % 3 == 0)]:
                    self.published[topic] = number
                    client.publish(topic, b"%d" % number, 1, number % 60_000 + 1, retain=retain)
                    self.acknowledged.messages[topic] = number

    def come_and_go(self) -> None:
        number = 0
        while not self._is_over.is_set() and number < MOST_PASSERS:
            number += 1
            leave_session(self.port, f"passer-{number}")
            self.acknowledged.sessions.append(f"passer-{number}")


def leave_session(port: int, client_id: str) -> None:
    """Begin a persistent session that is offline and wants every message."""
    with RawClient(port, 5, timeout=SECONDS) as client:
        client.connect(client_id, USERNAME, clean=False, props=KEPT)
        client.subscribe(("load/#", 1))
        client.disconnect()


def received(port: int, client_id: str, count: int) -> dict[str, list[int]]:
    """Resume a session and take so many messages: their numbers by topic, in order."""
    got: defaultdict[str, list[int]] = defaultdict(list)
    with RawClient(port, 5, timeout=SECONDS) as client:
        assert client.connect(client_id, USERNAME, clean=False, props=KEPT).session_present, client_id
        for _ in range(count):
            found = client.expect(PUBLISH)
            client.ack(PUBACK, found.packet_id)
            got[found.topic].append(int(found.payload))
    return dict(got)


def retained(port: int, count: int) -> dict[str, int]:
    """Return the number of each retained message; there are so many."""
    with RawClient(port, 5, timeout=SECONDS) as client:
        client.connect("onlooker", USERNAME)
        client.subscribe(("state/#", 0))
        return {found.topic: int(found.payload) for found in (client.expect(PUBLISH) for _ in range(count))}


@contextmanager
def load_on(hub: Hub) -> Iterator[Load]:
    """Let the load run for a while, and until the block is left."""
    load = Load(hub)
    with ThreadPoolExecutor() as threads:
        jobs = [threads.submit(load.publish, f"p{number}") for number in range(PUBLISHERS)]
        jobs.append(threads.submit(load.come_and_go))
        time.sleep(LOAD_S)
        try:
            yield load
        finally:
            load.end()
    for job in jobs:
        error = job.exception()
        assert error is None or isinstance(error, ClosedError | OSError), error


@contextmanager
def restored(folder: Path, path: Path) -> Iterator[Hub]:
    """A hub on the restored backup."""
    hub = Hub(path, is_whole=True)
    hub.run("restore", str(folder))
    try:
        hub.start()
        yield hub
    finally:
        hub.close()


def require_kept(hub: Hub, promised: Promises, load: Load) -> None:
    """Every promise is there, in order and without a hole; nothing is there that was never sent; all files are of one moment."""
    port = hub.ports["tcp"]
    waiting = {row["name"]: int(str(row["messages"])) for row in hub.rows("queue", "list", "acme", "--limit", "1000")}
    found = [received(port, reader, waiting[reader]) for reader in READERS]
    assert found[1:] == [found[0]] * (len(READERS) - 1), "one commit has a message for all of them"
    kept = {topic: number for topic, number in promised.messages.items() if topic.startswith("state/")}
    newest = retained(port, len(kept))
    for topic, number in promised.messages.items():
        if topic in kept:
            assert number <= newest[topic] <= load.published[topic], topic
        else:
            assert found[0][topic] == list(range(1, len(found[0][topic]) + 1)), topic
            assert number <= len(found[0][topic]) <= load.published[topic], topic

    sessions = {row["name"]: row for row in hub.rows("session", "list", "acme", "--limit", "1000")}
    assert set(promised.sessions) <= set(sessions)
    assert all("queued_messages" in row for row in sessions.values())
    hub.run("events", "verify")
    assert not [word for word in BAD_WORDS if word in hub.log], hub.log


@pytest.fixture
def running(hub: Hub) -> Hub:
    """A hub with readers that are away."""
    hub.settings["log.format"] = "json"
    hub.start()
    for reader in READERS:
        leave_session(hub.ports["tcp"], reader)
    return hub


def backed_up(hub: Hub, folder: Path) -> dict[str, object]:
    return dict(json.loads(hub.run("backup", str(folder), "-o", "json").stdout))


def test_backups_under_load_have_all_that_was_acknowledged_before(running: Hub, tmp_path: Path) -> None:
    """One alone, then two at the same time; the hub serves on meanwhile and afterwards."""
    made: list[tuple[Path, Promises]] = []
    with load_on(running) as load:
        made.append((tmp_path / "one", load.acknowledged.copy()))
        record = backed_up(running, tmp_path / "one")
        promised, number = load.acknowledged.copy(), load.acknowledged.messages["load/p0"]
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda name: backed_up(running, tmp_path / name), ("two", "three")))
        made += [(tmp_path / "two", promised), (tmp_path / "three", promised)]
    assert load.acknowledged.messages["load/p0"] > number, "the hub went on"
    assert running.stop() == 0

    assert record["is_hub_running"] is True
    for folder, before in made:
        assert before.messages, "the load had begun"
        with restored(folder, tmp_path / f"{folder.name}-restored") as hub:
            require_kept(hub, before, load)


class Killing(RunningHub):
    """Kills the hub in the middle of a backup."""

    def __init__(self, hub: Hub, *, is_before_release: bool) -> None:
        super().__init__(LocalHub(DataDir(hub.data_dir)))
        self._process = hub
        self._is_before_release = is_before_release

    def release(self, hold: str) -> bool:
        if self._is_before_release:
            self._process.kill()
        is_whole = super().release(hold)
        self._process.kill()
        return is_whole


def make_with(hub: Hub, killing: Killing, folder: Path) -> None:
    making.make(Order(DataDir(hub.data_dir), folder, "0", (), killing), SystemClock(), lambda _done, _of: None)


def test_hub_that_is_killed_during_the_copy_does_not_spoil_it(running: Hub, tmp_path: Path) -> None:
    """What the copy is made from stays, whatever becomes of the hub; and the hub starts again."""
    with load_on(running) as load:
        promised = load.acknowledged.copy()
        make_with(running, Killing(running, is_before_release=False), tmp_path / "backup")

    with restored(tmp_path / "backup", tmp_path / "restored") as hub:
        require_kept(hub, promised, load)
    running.start()
    require_kept(running, load.acknowledged, load)


def test_hub_that_is_killed_while_it_holds_still_ends_the_backup(running: Hub, tmp_path: Path) -> None:
    """Nobody can say then whether the files are of one moment: a hub may have started meanwhile."""
    with pytest.raises(UnavailableError):
        make_with(running, Killing(running, is_before_release=True), tmp_path / "backup")

    assert not (tmp_path / "backup").exists()
    assert backed_up(running, tmp_path / "backup")["is_hub_running"] is False


def test_command_that_dies_while_the_hub_holds_still_keeps_it_back_for_a_moment(running: Hub) -> None:
    """And if it only was slow, it hears that it was too slow."""
    hub = LocalHub(DataDir(running.data_dir))
    hold = hub.ask(Verb.BACKUP_HOLD, "", {}).result["hold"]

    with RawClient(running.ports["tcp"], 5, timeout=SECONDS) as client:
        client.connect("p0", USERNAME)
        client.publish("load/p0", b"1", 1, 1)

    assert hub.ask(Verb.BACKUP_RELEASE, "", {"hold": hold}).result == {"is_whole": False}
