# cython: annotation_typing=False
"""Appends to queues in Redis: how their rounds are sent, what goes with them, and what an answer means.

Knows no Lua and no connection; rounds and repeats are `remote.rounds`'s. The operations of a round are one pipeline. Between queues there is no
transaction.

Invariant: a position that this hub knows of is never issued again, not even when an older copy replaces the server. Each call names the last
position that the hub knows, and the queue continues after it; else a new message would look acknowledged. What was acknowledged and is missing
is lost; `on_back` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub.records.queued import Intent
from iothub_services.queues.port import Refused
from iothub_services.queues.redis.index import QueueIndex
from iothub_services.queues.redis.messages import MOST_BYTES, MOST_RECORDS, AppendCall, Encoder
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.sending import GONE, Sender
from iothub_services.queues.remote.rounds import Rounds
from iothub_services.queues.remote.shares import Item, Operation, Share
from iothub_services.queues.remote.tenant import RemoteQueue
from iothub_services.redis.calls import Argument, Call, Reply, command

_GONE = int(Refused.GONE)
_EXACTLY_ONCE = 2


class Appending(Rounds):
    """Routes messages into queues, each once: `writer` and `sequence` name a call. `on_missed`: called when a queue is not there."""

    def __init__(
        self,
        index: QueueIndex,
        sender: Sender,
        names: Names,
        clock: Clock,
        writer: int,
        sequence: Iterator[int],
        on_missed: Callable[[], None],
        on_back: Callable[[str], None] | None = None,
    ) -> None:
        Rounds.__init__(self, index, MOST_RECORDS, MOST_BYTES)
        self._sender = sender
        self._names = names
        self._clock = clock
        self._encoder = Encoder(names, writer)
        self._sequence = sequence
        self._hints: dict[int, int] = {}  # queue -> first deadline, not written to Redis yet
        self._settled: dict[int, list[bytes]] = {}  # queue -> message ids that it need not know any more
        self._on_missed = on_missed
        self._on_back = on_back

    def intended(self, message_id: bytes, intent: Intent) -> Item:
        """Return the message of an intent that somebody else has left open. Raises BackendError."""
        self._index.find([target.queue_id for target in intent.targets])
        item = Item(message_id, intent.expires_at_ms, intent.body.octets, intent.body.size)
        item.shares = [Share(target, self._index.get(target.queue_id)) for target in intent.targets]
        return item

    def settle(self, item: Item) -> None:
        """The message's intent is routed: if nobody but us had it, no queue is asked for its message id again.

        The next call to Redis says so. If this hub ends or that call fails, Redis forgets the message id when its time is over.
        """
        if item.is_settled_later:
            for share in item.shares:
                if share.qos == _EXACTLY_ONCE and share.position > 0:
                    self._settled.setdefault(share.queue_id, []).append(item.message_id)

    # --- of `Rounds`

    def _new_operation(self, known: RemoteQueue) -> Operation:
        return AppendCall(known)  # type: ignore[arg-type]  # the index has none but this driver's

    def _encode(self, operation: Operation, room: tuple[int, int]) -> None:
        call: AppendCall = operation  # type: ignore[assignment]
        now_ms = int(self._clock.wall() * 1000)
        call.call = self._encoder.call(call, next(self._sequence), now_ms, room)

    def _send(self, ahead: list[Any], operations: list[Operation]) -> list[Reply]:
        """Send what queues are asked and, behind it, by when to look for what has expired."""
        calls: list[Call] = list(ahead)
        for each in operations:
            call: AppendCall = each  # type: ignore[assignment]
            queue_id, earliest_ms = call.known.queue_id, call.earliest_ms
            if earliest_ms:
                self._hints[queue_id] = min(earliest_ms, self._hints.get(queue_id, earliest_ms))
            calls.append(call.call)
        count = len(calls)
        hinting = self._hinting()
        outcomes = self._sender.write([*calls, *hinting, *self._settling()])
        if self._hints and not isinstance(outcomes[count + len(hinting) - 1], BackendError):
            self._hints.clear()
        for at in range(len(ahead), count):
            if isinstance(outcomes[at], BackendError):
                outcomes[at] = self._sender.of_queue(operations[at - len(ahead)].known.queue_id, outcomes[at])
        return outcomes[:count]

    def _hinting(self) -> list[Call]:
        if not self._hints:
            return []
        pairs: list[Argument] = []
        for queue_id, earliest_ms in self._hints.items():
            pairs += (earliest_ms, queue_id)
        return [command("ZADD", self._names.due, "LT", *pairs)]

    def _settling(self) -> Iterator[Call]:
        """Say which ids are settled. In this order: an id that is known and in no list of those that grow old would never be forgotten."""
        for queue_id, message_ids in self._settled.items():
            ids, remembered = self._names.ids(queue_id)
            yield command("HDEL", ids, *message_ids)
            yield command("ZREM", remembered, *message_ids)
        self._settled = {}

    def _on_outcome(self, operation: Operation, answer: Any) -> BackendError | None:
        call: AppendCall = operation  # type: ignore[assignment]
        queue_id = call.known.queue_id
        if answer == GONE:
            self._on_missed()
            self._index.forget(queue_id)
            operation.refuse_all(_GONE)
            return None
        if answer == b"late":
            return BackendError(
                f"queue {queue_id} has a later call of this writer: another hub writes under the same incarnation",
                retryable=False,
                is_written=True,
            )
        try:
            call.on_answer(answer)
        except BackendError as error:
            return error
        if call.went_back_to >= 0 and self._on_back is not None:
            self._on_back(
                f"Redis went back to an older state (fail-over, or a file that was restored): queue {queue_id} stood at position "
                f"{call.went_back_to}, and had given later ones; what was acknowledged meanwhile is lost, in other queues perhaps, too"
            )
        return None
