"""The queue driver `redis` while links are cut, and Redis is killed, paused, restarted: nothing acknowledged is lost, nothing doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.testing.queue_contract import MANY, made
from iothub_services.queues.port import Append, Appended, Delivery, Inbound
from iothub_services.queues.redis.store import RedisQueues
from iothub_services.redis.blocking import BlockingRedis
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.hubs.redis_hubs import RedisQueueHarness
from tests.support.night import by_day
from tests.support.servers.cut_link import CutLink
from tests.support.servers.queue_writers import WritingHub, repeated
from tests.support.waiting import until

QUEUES = range(1, 17)
FLIGHT_S = 1.0  # until the hubs are in full flight
KILLS = by_day(2, 10)
PAUSE_S = 5.0
RECOVERY_S = 10.0


@pytest.fixture
def harness(redis_server: Services) -> Iterator[RedisQueueHarness]:
    harness = RedisQueueHarness(redis_server)
    harness.create(QUEUES)
    yield harness
    redis_server.up("redis")
    harness.remove()


def answered(hubs: list[WritingHub]) -> int:
    return sum(len(found) for hub in hubs for found in hub.acknowledged.values())


def recovery_s(hubs: list[WritingHub]) -> float:
    """Wait until every hub has got something new acknowledged, and say how long that took."""
    begun, before = time.monotonic(), [answered([hub]) for hub in hubs]
    while any(answered([hub]) <= count for hub, count in zip(hubs, before, strict=True)):
        assert time.monotonic() < begun + 2 * RECOVERY_S
        time.sleep(0.02)
    return time.monotonic() - begun


def test_redis_is_killed_under_load(harness: RedisQueueHarness) -> None:
    """Kill -9 with hubs in full flight, two of which take queues from each other: positions stay dense, everything once, in order."""
    with harness.writing(2, QUEUES, is_reading=True) as hubs:
        for _ in range(KILLS):
            time.sleep(FLIGHT_S)
            harness.services.kill("redis")
            time.sleep(0.3)
            harness.services.up("redis")
            assert recovery_s(hubs) <= RECOVERY_S

    assert sum(hub.failures for hub in hubs) > 0
    harness.check(hubs, QUEUES)
    assert harness.lost == []


def test_redis_is_restarted_in_good_order(harness: RedisQueueHarness) -> None:
    """As an operator does."""
    with harness.writing(2, QUEUES) as hubs:
        time.sleep(FLIGHT_S)
        harness.services.restart("redis")
        assert recovery_s(hubs) <= RECOVERY_S

    harness.check(hubs, QUEUES)


def test_redis_holds_its_breath(harness: RedisQueueHarness) -> None:
    """What was sent into the pause is done when it is over, though the hub has given that connection up: once all the same."""
    with harness.writing(2, QUEUES) as hubs:
        time.sleep(FLIGHT_S)
        harness.services.pause("redis")
        time.sleep(PAUSE_S)
        harness.services.resume("redis")
        assert recovery_s(hubs) <= RECOVERY_S

    assert sum(hub.failures for hub in hubs) > 0
    harness.check(hubs, QUEUES)


def test_link_is_cut_between_call_and_answer(harness: RedisQueueHarness) -> None:
    """What was done and not answered is found again, repeated, at the positions that it got."""
    with CutLink(HOST, harness.services.ports.redis) as link:
        with harness.writing(1, QUEUES, port=link.port, is_reading=True) as hubs:
            for _ in range(by_day(8, 40)):
                link.cut()
                time.sleep(0.1)
        assert link.cuts > 0
        assert hubs[0].failures > 0
    harness.check(hubs, QUEUES)


def test_inbound_qos2_while_the_link_is_cut(harness: RedisQueueHarness) -> None:
    """Whichever answer is lost - of the intent, of the appends, of `routed` - each message is there once."""
    with harness.store() as straight:
        readers = {queue_id: straight.claim(queue_id, b"reader").epoch for queue_id in QUEUES[:4]}
        publisher = straight.claim(QUEUES[9], b"publisher")
    with CutLink(HOST, harness.services.ports.redis) as link, harness.store(link.port) as store:
        for number in range(1, 31):
            link.cut(number % 3)
            deliveries = tuple(Delivery(queue_id, 2) for queue_id in readers)
            inbound = Inbound(QUEUES[9], publisher.epoch, number)
            answers, _ = repeated(store, [Append(number.to_bytes(16), b"%d" % number, 0, deliveries, inbound)])
            assert answers == [Appended((number,) * len(readers))]
        assert link.cuts > 5

    with harness.store() as straight:
        for queue_id, epoch in readers.items():
            page = straight.read(queue_id, epoch, 0, MANY, MANY)
            assert [record.body for record in page.records] == [b"%d" % number for number in range(1, 31)]


def test_replica_takes_over(harness: RedisQueueHarness, tmp_path: Path) -> None:
    """It lacks what came last: that is told, and no position is given again; all that it has is there."""
    master = harness.services.ports.redis
    with harness.replica(tmp_path) as replica, harness.store(master, replica) as store:
        claim = store.claim(1, b"reader")
        assert answers(store, 1, 2, 3) == [1, 2, 3]
        with closing(harness.connection()) as first, closing(harness.connection(replica)) as second:
            until(lambda: has_copied(first), "the replica's copy")
            second.run("REPLICAOF", "NO", "ONE")
            assert answers(store, 4, 5) == [4, 5]
            harness.services.kill("redis")
            assert answers(store, 6) == [6]
            assert len(harness.back) == 1
            page = store.read(1, claim.epoch, 0, MANY, MANY)
            assert [record.body for record in page.records] == [b"1", b"2", b"3", b"6"]
            assert answers(store, 7) == [7]
            assert (len(harness.back), harness.lost) == (1, [])


def answers(store: RedisQueues, *numbers: int) -> list[int]:
    """Append to queue 1, again until it works; return positions."""
    batch = [Append(b"", b"%d" % number, 0, (Delivery(1, 1),)) for number in numbers]
    return [answer.positions[0] for answer in repeated(store, batch)[0]]


def has_copied(master: BlockingRedis) -> bool:
    master.run("SET", "copied", 1)
    return master.run("WAIT", 1, 100) == 1


def test_silent_redis_costs_a_time_out_and_no_more(harness: RedisQueueHarness) -> None:
    """Whoever calls again meanwhile is told at once; nothing hangs."""
    with harness.store() as store:
        made(store, 99)
        harness.services.pause("redis")
        begun = time.monotonic()
        for _ in range(3):
            with pytest.raises(BackendError) as caught:
                store.tails([99])
            assert caught.value.retryable
        took_s = time.monotonic() - begun
        harness.services.resume("redis")

    assert took_s < 4.0
