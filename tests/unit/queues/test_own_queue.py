"""A publisher that receives its own messages, and whose queue takes none just now: from PUBLISH to the rows of a driver, and back to PUBREC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from iothub.records import keys
from iothub.testing.engine import Bench, Client, ManualStore, ack, publish
from iothub.testing.queue_contract import MANY, TENANT, one
from iothub_services.group_thread import Patience
from iothub_services.queues.port import Overflow, QueueLimits, QueueStore
from iothub_services.queues.threads import load_page
from iothub_services.queues.writer import QueueWriter
from iothub_services.retained.memory import MemoryRetained
from tests.support.hbase_queues import HBase
from tests.support.redis_queues import PREFIX, RedisHouse

OWN, OTHER = 1, 2
OWN_KEY = keys.queue_key(OWN, TENANT)
HELD = 3  # messages: then it is full
PACKET = 7


class House(NamedTuple):
    """A driver; `store` gives a hub's, `block` lets the publisher's queue take no message, but intents."""

    store: Callable[[int], QueueStore]
    block: Callable[[], object]


def on_redis() -> House:
    house = RedisHouse()
    state = f"{PREFIX}:queue:{{{OWN}}}:m"
    return House(house.store, lambda: house.redis.execute_command("HSET", state, "max_messages", "many"))


def on_hbase() -> House:
    house = HBase()

    def block() -> None:
        records = house.coprocessor.queues[OWN_KEY].records
        records[1] = replace(records[1], raw=b"\7" + records[1].raw[1:])

    return House(lambda hub: house.store(hub)[0], block)


class Hub(ManualStore):
    """A plane before a writer and a driver. Nothing is read, so that nothing leaves a queue."""

    def __init__(self, driver: QueueStore) -> None:
        super().__init__()
        self.driver = driver
        self.bench = Bench(None, self)
        clock = self.bench.clock
        self.writer = QueueWriter(
            driver, MemoryRetained(), lambda call: call(), clock, patience=Patience(), on_alarm=lambda *_: None
        )
        self.writer._plane = self.bench.plane  # the threads stay off
        self.bench.plane.turn.store = self.writer

    def claim(self, queue_id: int) -> Any:
        return self.driver.claim(queue_id, b"hub")

    def send(self, client: Client, data: bytes) -> bytes:
        """Return the answer; everything that it asks for is done."""
        heard = client.send(data)
        while self.writer.waiting[0]:
            self.writer._writes.drain()
        return heard + client.take()


@pytest.mark.parametrize("make", [on_redis, on_hbase])
def test_message_behind_a_refused_one_is_stored(make: Callable[[], House]) -> None:
    """The intent of the refused one was recorded: the next one under its identifier must not be taken for its repeat."""
    house = make()
    store = house.store(1)
    store.create(TENANT, OWN, QueueLimits(HELD, 0, Overflow.DROP_OLDEST))
    store.create(TENANT, OTHER, QueueLimits())
    for number in range(1, HELD + 1):
        store.append([one(OWN, number)])
    house.block()
    hub = Hub(house.store(2))
    publisher = hub.bench.client("p", version=5, queue_id=OWN)
    publisher.subscribe(b"a", 2)
    receiver = hub.bench.client("s", queue_id=OTHER)
    for topic in (b"a", b"b"):
        receiver.subscribe(topic, 2)

    first = hub.send(publisher, publish(b"a", b"1", 2, PACKET, properties=b""))
    second = hub.send(publisher, publish(b"b", b"2", 2, PACKET, properties=b""))

    assert (first, second) == (ack(0x50, PACKET, 0x83), ack(0x50, PACKET))
    found = load_page(hub.driver.read(OTHER, receiver.session.epoch, 0, MANY, MANY)).records
    assert [record.message.payload for record in found] == [b"1", b"2"]
