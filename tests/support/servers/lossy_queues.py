"""Queues on servers in memory: a test plays what becomes of the next calls, and lets those that were lost arrive late.

Knows what a server remembers of QoS 2 message ids; knows no verb of the queue port.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from iothub.records import keys
from iothub_services.hbase.calls import Call as HBaseCall
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.redis.store import RedisQueues
from iothub_services.redis.calls import Call as RedisCall
from tests.support.hbase import hbase_calls
from tests.support.hbase.hbase_queues import TABLES, HBase
from tests.support.servers import redis_queues
from tests.support.servers.redis_queues import PREFIX, RedisHarness

TENANT = 7
DAMAGED = b"\x09from the future"
T = TypeVar("T")

Played = int | Callable[[], None]
"""What becomes of a call: a driver's kind of fault, or what happens before it passes."""


class OnHBase:
    """`played`: what becomes of the next calls, each fault by its place among the driver's; then everything passes.

    `late`: lost calls that may still arrive. `lost`: what is played for one.
    """

    lost = list(hbase_calls.Fault).index(hbase_calls.Fault.LOST)

    def __init__(self) -> None:
        self._harness = HBase()
        self.played: list[Played] = []
        self.late: list[Callable[[], object]] = []

    def store(self, incarnation: int) -> HBaseQueues:
        store, caller = self._harness.store(incarnation)
        caller.fault = self._fault
        return store

    def remembered(self, queue_id: int) -> int:
        return len(self._harness.coprocessor.queues[keys.queue_key(queue_id, TENANT)].ids)

    def damage_intent(self, queue_id: int, packet_id: int) -> None:
        """Its message cannot be read any more."""
        row = keys.intent_row(keys.queue_key(queue_id, TENANT), packet_id)
        self._harness.gateway.table(TABLES.queues)[row] = {b"m:p": (DAMAGED, 1)}

    def _fault(self, call: HBaseCall[object]) -> hbase_calls.Fault:
        fault = _fault(list(hbase_calls.Fault), self.played)
        if fault is hbase_calls.Fault.LOST and call.verb.name == "append":
            frame = call.frame(1)[4:]
            self.late.append(lambda: self._harness.gateway.answer(frame))
        return fault


class OnRedis:
    """The same."""

    lost = list(redis_queues.Fault).index(redis_queues.Fault.LOST_BEFORE)

    def __init__(self) -> None:
        self._harness = RedisHarness()
        self._harness.fault = self._fault
        self.played: list[Played] = []
        self.late: list[Callable[[], object]] = []

    def store(self, incarnation: int) -> RedisQueues:
        return self._harness.store(incarnation)

    def remembered(self, queue_id: int) -> int:
        return int(self._harness.redis.execute_command("HLEN", f"{PREFIX}:queue:{{{queue_id}}}:d"))

    def damage_intent(self, queue_id: int, packet_id: int) -> None:
        inbound = f"{PREFIX}:queue:{{{queue_id}}}:i"
        kept = self._harness.redis.execute_command("HGET", inbound, packet_id)
        self._harness.redis.execute_command("HSET", inbound, packet_id, kept[:17] + DAMAGED)

    def _fault(self, call: RedisCall) -> redis_queues.Fault:
        fault = _fault(list(redis_queues.Fault), self.played)
        if fault is redis_queues.Fault.LOST_BEFORE and (
            call.script is not None or call.arguments[0] in ("HDEL", "ZREM")
        ):
            self.late.append(lambda: self._harness.ask([call]))
        return fault


Server = OnHBase | OnRedis


def _fault(kinds: list[T], played: list[Played]) -> T:
    number = played.pop(0) if played else 0
    if callable(number):
        number()
        return kinds[0]
    return kinds[number if number < len(kinds) else 0]
