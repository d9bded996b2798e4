"""A full disk under a running hub: an alarm, no acknowledgement, consumers served, recovery by itself, nothing acknowledged lost."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.backlog import PERSISTENT, Backlog, make_sleeper, wake_sleeper
from tests.support.clients.packets import CONNACK, PUBACK, PUBLISH
from tests.support.clients.raw import ClosedError, RawClient
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.wrapped import SmallDiskHub
from tests.support.night import at_night, by_day
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until

REFUSED = 0x97
WILL = ("live/will", b"never", 0, False)


def alarms(hub: SmallDiskHub) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return int(
        float(next(line for line in lines if line.startswith('iothub_alarms_active{severity="critical"')).split()[-1])
    )


def readiness(hub: SmallDiskHub) -> tuple[int, list[str]]:
    """What /readyz says: status and reasons."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/readyz", timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())["reasons"]
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())["reasons"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDiskHub]:
    """A running hub with a disk of 24 MiB."""
    plain = fresh_hub(tmp_path, alarms__disk_free="0")
    hub = SmallDiskHub(plain.data_dir, settings=plain.settings, ports={"http": free_port()})
    hub.start()
    yield hub
    hub.close()


def assert_connects_are_refused(port: int, version: int, within_s: float) -> None:
    """A CONNECT whose session needs the disk hears so in time, whether the session is to be resumed or to be made."""
    began = time.monotonic()
    clients = [RawClient(port, version) for _ in range(2)]
    for client, client_id in zip(clients, ("sleeper", "newcomer"), strict=True):
        props = PERSISTENT if version == 5 else None
        client.send(client.connect_bytes(client_id, "acme/dev1", clean=False, props=props, will=WILL))
    for client in clients:
        assert [(one.kind, one.code) for one in client.expect_closed()] == [(CONNACK, 0x88 if version == 5 else 3)]
        client.close()
    assert time.monotonic() - began < within_s


def assert_refused_connects_left_nothing(port: int) -> None:
    """The newcomer has no session; the sleeper has its own, which `wake_sleeper` shows."""
    with RawClient(port, 5, timeout=PATIENCE_S) as newcomer:
        assert not newcomer.connect("newcomer", "acme/dev1", clean=False, props=PERSISTENT).session_present
        newcomer.disconnect()


def test_a_full_disk_is_an_alarm_and_heals_when_space_is_freed(small: SmallDiskHub) -> None:
    port = small.ports["tcp"]
    make_sleeper(port)
    live = RawClient(port)
    live.connect("live", "acme/dev1")
    live.subscribe(("live/#", 0))
    chatter = RawClient(port)
    chatter.connect("chatter", "acme/dev2")
    publisher = Backlog(port, version=4)
    publisher.deliver(20)
    assert alarms(small) == 0

    small.fill(leave_kib=64)
    publisher.until_stuck(lambda: alarms(small) >= 1)

    chatter.publish("live/1", b"still here")
    assert live.expect(PUBLISH).payload == b"still here"
    assert small.is_running()
    small.make_room()
    assert publisher.take(PATIENCE_S), "not acknowledged although there is free space"
    until(lambda: alarms(small) == 0, "the alarm is over")
    publisher.deliver(1)
    assert publisher.acknowledged == list(range(1, publisher.sent + 1))
    got = wake_sleeper(port, publisher.sent)
    assert got == list(range(1, publisher.sent + 1))
    assert "Traceback" not in small.log
    for client in (live, chatter, publisher.client):
        client.close()


def test_connected_consumers_of_stored_messages_go_on_while_the_disk_is_full(small: SmallDiskHub) -> None:
    """What is stored is delivered to who is there, although its acknowledgements cannot be written down yet."""
    port = small.ports["tcp"]
    make_sleeper(port)
    with RawClient(port, 5) as reader:
        reader.connect("sleeper", "acme/dev1", clean=False, props=[*PERSISTENT, (0x21, 3)])
        publisher = Backlog(port, version=4)
        publisher.deliver(40)
        small.fill()
        publisher.until_stuck(lambda: alarms(small) >= 1)

        got = []
        for _ in range(40):
            got.append(reader.expect(PUBLISH))
            reader.ack(PUBACK, got[-1].packet_id)

        assert [int(one.payload[:8]) for one in got] == list(range(1, 41))
        small.make_room()
        assert publisher.take(PATIENCE_S)
        assert int(reader.expect(PUBLISH).payload[:8]) == 41
        publisher.client.close()


def test_readers_make_room_on_a_disk_that_publishers_have_filled(small: SmallDiskHub) -> None:
    """Who was away can connect and read, who is new can begin a session, and the publishers go on, all without help from outside."""
    port = small.ports["tcp"]
    make_sleeper(port)
    publisher = Backlog(port, version=4)
    small.fill(leave_kib=14 << 10)
    publisher.send()
    while publisher.take(1.0) or not alarms(small):
        publisher.send()
    stored = len(publisher.acknowledged)
    assert stored > 100
    assert readiness(small) == (200, [])
    with RawClient(port, 5, timeout=PATIENCE_S) as newcomer:
        assert newcomer.connect("newcomer", "acme/dev1", clean=False, props=PERSISTENT).code == 0
        newcomer.disconnect()

    assert wake_sleeper(port, stored) == publisher.acknowledged

    until(lambda: alarms(small) == 0, "the alarm is over")
    assert publisher.take(PATIENCE_S)
    publisher.deliver(20)
    assert "Traceback" not in small.log
    publisher.client.close()


@pytest.mark.parametrize("version", [4, 5])
def test_a_publisher_is_refused_or_closed_when_the_hub_gives_up(tmp_path: Path, version: int) -> None:
    """After `queues.give_up_s` 5.0 gets 0x97 (nothing was written), 3.1.1 is closed without an answer; never a success."""
    plain = fresh_hub(tmp_path, alarms__disk_free="0", queues__give_up="20s")
    hub = SmallDiskHub(plain.data_dir, settings=plain.settings, ports={"http": free_port()})
    hub.start()
    try:
        make_sleeper(hub.ports["tcp"])
        publisher = Backlog(hub.ports["tcp"], version=version)
        hub.refuse_writes(above_bytes=64 << 10)
        publisher.until_stuck(lambda: alarms(hub) >= 1)

        try:
            refusal = publisher.client.expect(PUBACK).code
        except ClosedError:
            refusal = None

        assert refusal in ((None,) if version == 4 else (None, REFUSED))
        assert_connects_are_refused(hub.ports["tcp"], version, by_day(PATIENCE_S, 25.0))
        assert alarms(hub) >= 1, "it is over only with a commit that succeeds"
        hub.refuse_writes(above_bytes=None)
        assert_refused_connects_left_nothing(hub.ports["tcp"])
        until(lambda: alarms(hub) == 0, "the alarm is over")
        got = wake_sleeper(hub.ports["tcp"], len(publisher.acknowledged))
        assert got[: len(publisher.acknowledged)] == publisher.acknowledged
        assert hub.is_running()
        publisher.client.close()
    finally:
        hub.close()


@pytest.mark.parametrize("version", [5, *at_night(4)])
def test_a_connect_is_refused_before_its_time_is_over(small: SmallDiskHub, version: int) -> None:
    """`queues.give_up` is longer than a client waits for its CONNACK: 0x88, in 3.1.1 return code 3; then nothing comes into force half."""
    port = small.ports["tcp"]
    make_sleeper(port)
    listener = RawClient(port, 5)
    listener.connect("listener", "acme/dev2")
    listener.subscribe(("live/#", 0))
    publisher = Backlog(port)
    small.refuse_writes(above_bytes=64 << 10)
    publisher.until_stuck(lambda: alarms(small) >= 1)

    assert_connects_are_refused(port, version, by_day(PATIENCE_S, 10.0))

    small.refuse_writes(above_bytes=None)
    assert publisher.take(PATIENCE_S)
    assert_refused_connects_left_nothing(port)
    got = wake_sleeper(port, publisher.sent)
    assert got == list(range(1, publisher.sent + 1))
    listener.ping()
    assert listener.received == []
    for client in (listener, publisher.client):
        client.close()


def test_a_full_disk_is_seen_when_nobody_writes(small: SmallDiskHub) -> None:
    """/readyz says the truth before a client has to find out; and after, without a client either."""
    assert readiness(small) == (200, [])
    small.fill()
    until(lambda: readiness(small) == (503, ["the disk is full"]), "not ready")
    until(lambda: alarms(small) == 2, "disk_short and disk_full")

    small.make_room()

    until(lambda: readiness(small) == (200, []), "ready again")
    until(lambda: alarms(small) == 0, "the alarms are over")
    assert small.is_running()


def test_a_store_that_refuses_writes_is_an_alarm_and_no_exit(small: SmallDiskHub) -> None:
    """Not for want of room: what a read-only file system or a failing disk does to a write. It heals by itself, without a client."""
    make_sleeper(small.ports["tcp"])
    publisher = Backlog(small.ports["tcp"])
    publisher.deliver(3)
    small.refuse_writes(above_bytes=64 << 10)
    publisher.until_stuck()
    until(lambda: alarms(small) >= 1, "an alarm about the store")
    assert readiness(small)[0] == 503

    small.refuse_writes(above_bytes=None)

    assert publisher.take(PATIENCE_S)
    until(lambda: readiness(small) == (200, []), "ready again")
    until(lambda: alarms(small) == 0, "the alarm is over")
    assert publisher.acknowledged == list(range(1, publisher.sent + 1))
    assert wake_sleeper(small.ports["tcp"], publisher.sent) == publisher.acknowledged
    publisher.client.close()
