# cython: annotation_typing=False
"""Appends to queues in HBase: how their rounds are sent to the regions, bodies that are stored apart, and which calls are settled.

Knows neither regions nor bytes of a request; rounds and repeats are `remote.rounds`'s. The operations of a round are one call for each region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records.queued import Intent, reference
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.bodies import FEW, LARGE_BYTES, Bodies, is_apart
from iothub_services.queues.hbase.index import QueueIndex
from iothub_services.queues.hbase.regions import Outcome, Regions
from iothub_services.queues.hbase.requests import Status
from iothub_services.queues.hbase.shares import AppendCall, Heads
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Append, Refused
from iothub_services.queues.remote.rounds import Ahead, Rounds
from iothub_services.queues.remote.shares import Item, Operation, Share
from iothub_services.queues.remote.tenant import RemoteQueue

_GONE = int(Refused.GONE)
_DONE = int(Status.DONE)


class Appending(Rounds):
    """Routes messages into queues, each once: `writer` and `sequence` name a call."""

    def __init__(
        self, index: QueueIndex, regions: Regions, bodies: Bodies, writer: int, sequence: Iterator[int]
    ) -> None:
        Rounds.__init__(self, index, requests.MOST_RECORDS, regions.request_bytes)
        self._regions = regions
        self._bodies = bodies
        self._writer = writer
        self._sequence = sequence
        self._heads = Heads()
        self._last = 0  # the sequence of the newest call
        self._settled = (1, 1)  # the calls from the first to before the second one: see `settle`

    def intended(self, message_id: bytes, intent: Intent) -> Item:
        """Return the message of an intent that somebody else has left open. Raises BackendError."""
        self._index.find([target.queue_id for target in intent.targets])
        body = intent.body
        item = Item(message_id, intent.expires_at_ms, body.stored, body.size)
        item.body_id = body.id
        item.shares = [Share(target, self._index.get(target.queue_id)) for target in intent.targets]
        return item

    def put_bodies(self, items: Sequence[Item]) -> None:
        """Make the bodies durable that are stored apart. Raises BackendError."""
        unput = [item.unput for item in items if item.unput is not None]
        if unput:
            self._bodies.put(unput)
            for item in items:
                item.unput = None

    def route(self, items: Sequence[Item], ahead: Ahead | None = None) -> None:
        self.put_bodies(items)
        Rounds.route(self, items, ahead)

    def settle(self, *, is_well: bool) -> None:
        """Say of the QoS 2 messages whose intents are our own whether all of them are routed (`is_well`).

        Then no call so far has an id that comes again. Otherwise some may, by whoever finds their intents open: they stay known until their time
        is over, and those of later calls are settled without them.
        """
        upto = self._last + 1
        self._settled = (self._settled[0] if is_well else upto, upto)

    # --- of `Rounds`

    def _begun(self, op: Append | AppendOperation) -> Item:
        item: Item = Rounds._begun(self, op)
        count = len(item.shares)
        if (item.size > LARGE_BYTES or count > FEW) and is_apart(item.size, count):
            tenants = {share.known.tenant_id for share in item.shares if share.known is not None}
            if len(tenants) == 1:
                octets = item.stored
                item.body_id = self._bodies.new_id()
                item.stored = reference(item.body_id)
                item.unput = tenants.pop(), item.body_id, octets
        return item

    def _new_operation(self, known: RemoteQueue) -> Operation:
        return AppendCall(known)  # type: ignore[arg-type]  # the index has none but this driver's

    def _encode(self, operation: Operation, room: tuple[int, int]) -> None:
        call: AppendCall = operation  # type: ignore[assignment]
        self._last = next(self._sequence)
        call.encode(self._writer, self._last, room, self._heads, self._settled)

    def _send(self, ahead: list[Any], operations: list[Operation]) -> list[Outcome]:
        steps = list(ahead)
        for each in operations:
            call: AppendCall = each  # type: ignore[assignment]
            steps.append(call.step)
        return self._regions.send_steps(steps)

    def _on_outcome(self, operation: Operation, outcome: Any) -> BackendError | None:
        status, octets = outcome
        if status == _DONE:
            call: AppendCall = operation  # type: ignore[assignment]
            try:
                call.on_answer(octets)
            except (CorruptRecordError, ValueError) as error:
                return BackendError(str(error), retryable=False, is_written=True)
            return None
        queue_id = operation.known.queue_id
        if status == Status.GONE:
            self._index.forget(queue_id)
            operation.refuse_all(_GONE)
            return None
        return BackendError(
            f"queue {queue_id} has a later call of this writer (status {status}): "
            "another hub writes under the same incarnation",
            retryable=False,
            is_written=True,
        )
