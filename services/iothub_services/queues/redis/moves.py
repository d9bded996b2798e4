"""What readers do to their own queues in Redis: moves, and claims.

Knows the scripts of readers; knows no append. A repeat of a move changes nothing, so an uncertain call is simply made again, with a higher
sequence: the one before it comes too late then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from iothub.base.clock import Clock
from iothub_services.queues.port import Move
from iothub_services.queues.redis.index import KnownQueue, QueueIndex, unknown
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.reader_scripts import CLAIM, ID_KEPT_MS, IDS_KEPT, MOVE
from iothub_services.queues.redis.sending import GONE, Sender, require
from iothub_services.redis.calls import Argument, Call, Reply, Script, script_call

Reader = tuple[int, int]  # queue id, epoch


class Claimed(NamedTuple):
    """What the store says to a claim. `open`: (Packet Identifier, message id) of inbound messages that are not routed."""

    epoch: int
    head: int
    tail: int
    reserved: int
    released: tuple[int, ...]
    routed: tuple[int, ...]
    open: tuple[tuple[int, bytes], ...]


class Readers:
    """Sends moves and claims. `sequence` rises with every call: no two calls of one epoch have the same."""

    def __init__(self, index: QueueIndex, sender: Sender, names: Names, clock: Clock, sequence: Iterator[int]) -> None:
        self._index = index
        self._sender = sender
        self._names = names
        self._clock = clock
        self._sequence = sequence

    def apply(self, moves: Sequence[Move]) -> list[bool]:
        """Do moves. Raises BackendError: some may be done."""
        by_reader: dict[Reader, list[Argument]] = {}
        for move in moves:
            by_reader.setdefault((move.queue_id, move.epoch), []).extend((int(move.kind), move.value))
        self._index.find(queue_id for queue_id, _ in by_reader)
        there = [(reader, known) for reader in by_reader if (known := self._index.get(reader[0])) is not None]
        calls = [
            self.call(MOVE, known.queue_id, reader[1], *self._ages(), *by_reader[reader]) for reader, known in there
        ]
        done = dict.fromkeys(by_reader, False)
        answers = [
            self._sender.of_queue(known.queue_id, each)
            for (_, known), each in zip(there, self._sender.write(calls), strict=True)
        ]
        for (reader, known), outcome in zip(there, require(answers), strict=True):
            done[reader] = self._moved(known, outcome)
        return [done[move.queue_id, move.epoch] for move in moves]

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

    def _moved(self, known: KnownQueue, outcome: Reply) -> bool:
        if isinstance(outcome, list):
            messages, size_bytes = cast("list[bytes]", outcome)
            known.holds(int(messages), int(size_bytes))
            return True
        if outcome == GONE:
            self.lost(known)
        return False

    def _ages(self) -> tuple[int, int, int]:
        return int(self._clock.wall() * 1000), ID_KEPT_MS, IDS_KEPT
