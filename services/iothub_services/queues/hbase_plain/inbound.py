"""The publisher's side of inbound QoS 2 in driver `hbase-plain`: what is recorded in the meta row of its own queue, before and after an append.

Knows meta rows; knows no target queue. A message and how far it has come is an `Item`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from iothub.records import keys
from iothub.records.queued import Body, Intent, Target, encode_intent
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call
from iothub_services.queues.hbase.bodies import inline
from iothub_services.queues.hbase_plain.meta import Meta, Open, intent_column
from iothub_services.queues.hbase_plain.queue import LogQueue
from iothub_services.queues.port import Append, Appended, Inbound, Refused, Unreadable


@dataclass(eq=False, slots=True)
class Item:
    """One message, and how far it has come. `positions`: 0 where there is no answer yet.

    `is_open`: its intent is recorded; `is_repeated`: of an earlier call, or of another hub, so queues may have it already.
    """

    append: Append
    message_id: bytes
    positions: list[int]
    body: Body | None = None
    is_body_put: bool = False
    is_open: bool = False
    is_repeated: bool = False
    refusal: Appended | None = None
    dropped: list[tuple[int, int]] = field(default_factory=list)
    hit: list[str] = field(default_factory=list)
    unreadable: dict[int, Unreadable] = field(default_factory=dict)

    @property
    def answer(self) -> Appended:
        positions = tuple(self.positions)
        unreadable = tuple(self.unreadable.items())
        return self.refusal or Appended(
            positions, dropped=tuple(self.dropped), hit=tuple(self.hit), unreadable=unreadable
        )

    def refuse(self, index: int, found: Unreadable) -> None:
        """A queue of it cannot be read."""
        self.positions[index] = Refused.UNREADABLE
        self.unreadable[self.append.deliveries[index].queue_id] = found


class Opening:
    """Records the intents of some messages in their publisher's meta row, and says which of them are duplicates or stale."""

    def __init__(self, table: bytes, items: Sequence[Item]) -> None:
        self._table = table
        self._items = items

    def __call__(self, queue: LogQueue) -> tuple[Meta, Sequence[Call[None]]]:
        meta = queue.meta
        inbound = dict(meta.inbound)
        seen = {item.append.inbound.packet_id for item in self._items if item.is_open and item.append.inbound}
        before = []
        for item in self._items:
            if not item.is_open and item.append.inbound is not None:
                self._open(item, item.append.inbound, inbound, seen, is_stale=item.append.inbound.epoch != meta.epoch)
                if item.refusal is None and not item.is_repeated and item.append.deliveries:
                    before.append(self._put(queue, item))
        return (meta if inbound == meta.inbound else replace(meta, inbound=inbound)), before

    def _open(self, item: Item, asked: Inbound, inbound: dict[int, Open], seen: set[int], *, is_stale: bool) -> None:
        kept = inbound.get(asked.packet_id)
        item.refusal = Appended((), is_stale=True) if is_stale else None
        item.is_repeated = False
        if is_stale:
            return
        if kept is None:
            item.message_id = item.append.message_id or secrets.token_bytes(16)
            inbound[asked.packet_id] = Open(not item.append.deliveries, item.message_id)
        elif kept.is_routed or asked.packet_id in seen:
            item.refusal = Appended((), is_duplicate=True)
        else:
            item.message_id = kept.message_id
            item.is_repeated = True
        seen.add(asked.packet_id)

    def _put(self, queue: LogQueue, item: Item) -> Call[None]:
        append, body = item.append, item.body or inline(item.append.body)
        targets = tuple(
            [Target(each.queue_id, each.qos, each.flags, each.subscription_ids) for each in append.deliveries]
        )
        raw = encode_intent(Intent(append.expires_at_ms, targets, body))
        column = intent_column(append.inbound.packet_id if append.inbound else 0)
        return calls.mutate_row(self._table, keys.meta_row(queue.key), {column: raw}).pinned(queue.key)


class Routing:
    """Says in a publisher's meta row that messages are in every queue."""

    def __init__(self, routed: Sequence[tuple[Inbound, bytes]]) -> None:
        self._routed = routed

    def __call__(self, queue: LogQueue) -> tuple[Meta, Sequence[Call[None]]]:
        meta = queue.meta
        inbound = dict(meta.inbound)
        for asked, message_id in self._routed:
            kept = inbound.get(asked.packet_id)
            if asked.epoch == meta.epoch and kept is not None and kept.message_id == message_id:
                inbound[asked.packet_id] = Open(True, message_id)
        return (meta if inbound == meta.inbound else replace(meta, inbound=inbound)), ()
