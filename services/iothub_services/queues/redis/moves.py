# cython: annotation_typing=False
"""What readers do to their own queues in Redis: moves, and claims.

Knows the scripts of readers; knows no append. A repeat of a move changes nothing, so an uncertain call is simply made again, with a higher
sequence: the one before it comes too late then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub_services.queues.port import Move
from iothub_services.queues.redis.index import KnownQueue, QueueIndex, unknown
from iothub_services.queues.redis.messages import packed_number
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.reader_scripts import CLAIM, ID_KEPT_MS, IDS_KEPT, MOVE
from iothub_services.queues.redis.sending import GONE, Sender
from iothub_services.queues.remote.rounds import as_one
from iothub_services.redis.calls import Argument, Call, PackedCall, Reply, Script, packed_start, script_call

Reader = tuple[int, int]  # queue id, epoch

_WORDS = Names.count + 5  # keys; what a call of moves says once


class Claimed(NamedTuple):
    """What the store says to a claim. `open`: (Packet Identifier, message id) of inbound messages that are not routed."""

    epoch: int
    head: int
    tail: int
    reserved: int
    released: tuple[int, ...]
    routed: tuple[int, ...]
    open: tuple[tuple[int, bytes], ...]


class Moving:
    """Moves on their way. `asked`: one call for each reader that has a queue."""

    def __init__(
        self,
        index: QueueIndex,
        sender: Sender,
        names: Names,
        sequence: Iterator[int],
        now_ms: int,
        moves: Sequence[Move],
    ) -> None:
        self._index = index
        self._sender = sender
        self._known: list[KnownQueue] = []
        self._readers: list[Reader] = []
        self._done: set[Reader] = set()
        self.asked: list[Call] = []
        self._ask(names, sequence, now_ms, moves)

    def _ask(self, names: Names, sequence: Iterator[int], now_ms: int, moves: Sequence[Move]) -> None:
        """Make the calls. Raises BackendError."""
        by_reader: dict[Reader, list[bytes]] = {}
        for kind, queue_id, epoch, value in moves:
            words = by_reader.get((queue_id, epoch))
            if words is None:
                words = by_reader[queue_id, epoch] = []
            words.append(packed_number(kind))
            words.append(packed_number(value))
        unknown_ids = [queue_id for queue_id, _ in by_reader if self._index.get(queue_id) is None]
        if unknown_ids:
            self._index.find(unknown_ids)
        said = b"".join([packed_number(each) for each in (now_ms, ID_KEPT_MS, IDS_KEPT)])
        one = _start(2)
        for reader, words in by_reader.items():
            queue_id, epoch = reader
            known = self._index.get(queue_id)
            if known is not None:
                self._known.append(known)
                self._readers.append(reader)
                start = one if len(words) == 2 else _start(len(words))
                number = packed_number(next(sequence))
                parts = [start, names.packed_keys(queue_id), packed_number(epoch), number, said, *words]
                self.asked.append(PackedCall(MOVE, b"".join(parts)))

    def take(self, outcomes: Sequence[Reply]) -> list[BackendError]:
        """Take what became of each call that was asked for; return one error for all that were in the way of any."""
        errors: list[BackendError] = []
        for at in range(len(outcomes)):
            known = self._known[at]
            outcome = outcomes[at]
            if type(outcome) is list:
                messages, size_bytes = cast("list[bytes]", outcome)
                known.holds(int(messages), int(size_bytes))
                self._done.add(self._readers[at])
                continue
            outcome = self._sender.of_queue(known.queue_id, outcome)
            if isinstance(outcome, BackendError):
                errors.append(outcome)
            elif outcome == GONE:
                self._index.forget(known.queue_id)
        return as_one(errors, len(outcomes))

    def done(self, moves: Sequence[Move]) -> list[bool]:
        """Say of each of these moves whether it is done."""
        return [(queue_id, epoch) in self._done for _, queue_id, epoch, _ in moves]


class Readers:
    """Sends moves and claims. `sequence` rises with every call: no two calls of one epoch have the same."""

    def __init__(self, index: QueueIndex, sender: Sender, names: Names, clock: Clock, sequence: Iterator[int]) -> None:
        self._index = index
        self._sender = sender
        self._names = names
        self._clock = clock
        self._sequence = sequence

    def begin(self, moves: Sequence[Move]) -> Moving:
        """Return moves that somebody else sends. Raises BackendError."""
        return Moving(self._index, self._sender, self._names, self._sequence, int(self._clock.wall() * 1000), moves)

    def apply(self, moves: Sequence[Move]) -> list[bool]:
        """Do moves. Raises BackendError: some may be done."""
        moving = self.begin(moves)
        for error in moving.take(self._sender.write(moving.asked)):
            raise error
        return moving.done(moves)

    def call(self, script: Script, queue_id: int, epoch: int, *arguments: Argument) -> Call:
        """Return a call that is fenced by the reader's epoch, and numbered."""
        return script_call(script, self._names.keys(queue_id), epoch, next(self._sequence), *arguments)

    def claim(self, known: KnownQueue, token: int, owner: bytes) -> Claimed:
        """Make the caller the only reader; with the same token again it is the same claim. Raises NotFoundError, BackendError."""
        call = script_call(CLAIM, self._names.keys(known.queue_id), token, owner, *self._ages())
        answer = self._sender.write_one(call, known.queue_id)
        if answer == GONE:
            self.lost(known)
            raise unknown(known.queue_id)
        *numbers, released, inbound = cast("list[Reply]", answer)
        epoch, head, tail, reserved, messages, size_bytes = map(int, cast("list[bytes]", numbers))
        known.holds(messages, size_bytes)
        known.tail = max(known.tail, tail)
        kept = cast("list[bytes]", inbound)
        pairs = sorted(zip(map(int, kept[::2]), kept[1::2], strict=True))
        return Claimed(
            epoch,
            head,
            tail,
            reserved,
            tuple(map(int, cast("list[bytes]", released))),
            tuple([packet_id for packet_id, state in pairs if state[:1] == b"r"]),
            tuple([(packet_id, state[1:]) for packet_id, state in pairs if state[:1] == b"o"]),
        )

    def lost(self, known: KnownQueue) -> None:
        """Redis says that a queue is not there."""
        self._index.forget(known.queue_id)

    def _ages(self) -> tuple[int, int, int]:
        return int(self._clock.wall() * 1000), ID_KEPT_MS, IDS_KEPT


def _start(words: int) -> bytes:
    return packed_start(MOVE, _WORDS + words)
