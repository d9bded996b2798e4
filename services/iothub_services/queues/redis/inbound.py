"""Inbound QoS 2 of persistent publishers in Redis: the intent before the append, `routed` behind it, and what a crash left between.

Knows the order of the steps (intent, append, `routed`); the append itself is `append`'s.

Theory: queues are changed one by one, so a crash may leave a message in some of its queues. Every queue gets the message under the message id
that the intent keeps, and remembers it, so repeating the append doubles nothing at QoS 2. The hub that claims the publisher's queue finishes
what was not routed; a damaged intent stays open, and the client's own repeat routes it.

Invariant: the intent, with all that is needed to finish it, is durable in the publisher's own queue before the first append; `routed` is
durable before PUBREC. In any other order a crash loses the message or stores it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, cast

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records.queued import Intent, Target, decode_intent, encode_intent
from iothub_services.damaged import OnDamage
from iothub_services.queues.port import Appended, Inbound, Move, MoveKind, Refused
from iothub_services.queues.redis.append import Appending
from iothub_services.queues.redis.index import KnownQueue
from iothub_services.queues.redis.moves import Reader, Readers
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.reader_scripts import INTEND
from iothub_services.queues.redis.sending import Sender
from iothub_services.queues.remote.shares import Item, Progress
from iothub_services.redis.calls import Argument, Reply, command

log = logging.get(__name__)

_ID_BYTES = 16
_NO_BODY = b""


class Publish(NamedTuple):
    """One message of a persistent publisher."""

    inbound: Inbound
    item: Item


class Inbounds:
    """Does the publisher's side of a batch."""

    def __init__(
        self,
        sender: Sender,
        names: Names,
        readers: Readers,
        appending: Appending,
        clock: Clock,
        writer: int,
        on_damaged_record: OnDamage,
    ) -> None:
        self._sender = sender
        self._names = names
        self._readers = readers
        self._appending = appending
        self._clock = clock
        self._writer = writer.to_bytes(8, "big")
        self._last_us = 0
        self._on_damaged_record = on_damaged_record

    def route(self, items: Sequence[Item], publishes: Sequence[Publish]) -> None:
        """Do all three steps for a batch, in its order; `publishes` are those of `items` that have a publisher.

        Raises:
            BackendError: Some may be done.
        """
        first: dict[Inbound, Item] = {}
        repeated = [each for each in publishes if first.setdefault(each.inbound, each.item) is not each.item]
        later = {id(item) for _, item in repeated}
        try:
            self._intend(first)
            self._appending.route([item for item in items if id(item) not in later])
            self._close(first)
        except BackendError as error:
            # An intent that is there will be finished: nobody may get the answer that nothing was written.
            error.is_written |= any(item.progress >= Progress.ASKED for _, item in publishes)
            raise
        for inbound, item in repeated:  # only now: its PUBREC says that the first one is routed
            answer = first[inbound].answer
            is_stale = answer is not None and answer.is_stale
            item.refuse(Appended((), is_stale=True) if is_stale else Appended((), is_duplicate=True))

    def finish(self, known: KnownQueue, epoch: int, intents: Sequence[tuple[int, bytes]]) -> list[int]:
        """Route what a publisher's queue says is not routed, (Packet Identifier, message id); return those that are now.

        They go in the order in which they came, which is that of message ids; Packet Identifiers begin anew [MQTT-4.6.0-5].

        Raises:
            BackendError: Redis cannot be reached, or refused; some may be routed.
        """
        queue_id, intents = known.queue_id, sorted(intents, key=itemgetter(1))
        wanted = [packet_id for packet_id, _ in intents]
        found = cast(
            "list[bytes | None]", self._sender.read_one(command("HMGET", self._names.inbound(queue_id), *wanted))
        )
        items: dict[int, Item] = {}
        for (packet_id, message_id), kept in zip(intents, found, strict=True):
            try:
                intent = decode_intent((kept or b"")[1 + _ID_BYTES :])
                items[packet_id] = self._appending.intended(message_id, intent)
            except CorruptRecordError as error:
                where = f"tenant {known.tenant_id}, QoS 2 message {packet_id} from the client of queue {known.queue_id}"
                self._on_damaged_record("queues", where, str(error))
        self._appending.route(list(items.values()))
        self._readers.apply([_routed(Inbound(queue_id, epoch, packet_id)) for packet_id in items])
        _report(queue_id, items)
        return list(items)

    # --- inside

    def _intend(self, first: dict[Inbound, Item]) -> None:
        """Make the intents durable of those whose intent may not be there, and store the answer of each."""
        asked: dict[Reader, list[Publish]] = {}
        for inbound, item in first.items():
            if item.answer is None and item.progress < Progress.INTENDED:
                asked.setdefault((inbound.queue_id, inbound.epoch), []).append(Publish(inbound, item))
        if not asked:
            return
        calls = []
        for (queue_id, epoch), publishes in asked.items():
            arguments = [argument for publish in publishes for argument in self._arguments(publish)]
            calls.append(self._readers.call(INTEND, queue_id, epoch, *arguments))
        errors = []
        for ((queue_id, _), publishes), answer in zip(asked.items(), self._sender.write(calls), strict=True):
            outcome = self._sender.of_queue(queue_id, answer)
            if isinstance(outcome, BackendError):
                errors.append(outcome)
                _mark_asked(publishes, outcome)
            else:
                _take_all(publishes, outcome)
        if errors:
            raise min(errors, key=lambda error: error.retryable)

    def _arguments(self, publish: Publish) -> tuple[Argument, ...]:
        inbound, item = publish
        if len(item.message_id) != _ID_BYTES:
            item.message_id = self._new_id()
        intent = encode_intent(_intent(item)) if item.shares else _NO_BODY
        return inbound.packet_id, item.message_id, int(not item.shares), intent

    def _close(self, first: dict[Inbound, Item]) -> None:
        """What was appended is routed from now on: a repeated PUBLISH gets only its PUBREC."""
        done = [(inbound, item) for inbound, item in first.items() if item.progress == Progress.INTENDED]
        are_ours = self._readers.apply([_routed(inbound) for inbound, _ in done])
        for (_, item), is_ours in zip(done, are_ours, strict=True):
            item.progress = Progress.ROUTED
            if is_ours:  # else somebody else has claimed the publisher's queue, and may have found the intent open
                self._appending.settle(item)

    def _new_id(self) -> bytes:
        """Return an id that none had before: 64-bit clock in microseconds, writer."""
        self._last_us = max(int(self._clock.wall() * 1_000_000), self._last_us + 1)
        return self._last_us.to_bytes(8, "big") + self._writer


def _mark_asked(publishes: Sequence[Publish], error: BackendError) -> None:
    if error.is_written:
        for _, item in publishes:
            item.progress = Progress.ASKED


def _take_all(publishes: Sequence[Publish], outcome: Reply) -> None:
    if not isinstance(outcome, list):
        for _, item in publishes:
            item.refuse(Appended((), is_stale=True))
        return
    for (_, item), kept in zip(publishes, cast("list[bytes]", outcome), strict=True):
        _take(item, kept)


def _take(item: Item, kept: bytes) -> None:
    """Take what the publisher's queue says of an intent. Of an attempt whose answer was lost it has our own message id."""
    is_ours = kept == b"n" or (item.progress == Progress.ASKED and kept[1:] == item.message_id)
    if kept[:1] == b"r" and not is_ours:
        item.refuse(Appended((), is_duplicate=True))
        return
    if kept != b"n":
        item.message_id = kept[1:]  # of an earlier attempt, perhaps: the queues may have it under that id
    item.is_settled_later = is_ours
    item.progress = Progress.INTENDED if item.shares else Progress.ROUTED


def _intent(item: Item) -> Intent:
    targets = tuple([Target(each.queue_id, each.qos, each.flags, tuple(each.subscription_ids)) for each in item.shares])
    return Intent(item.expires_at_ms, targets, item.body)


def _routed(inbound: Inbound) -> Move:
    return Move(MoveKind.RECORD_INBOUND, inbound.queue_id, inbound.epoch, inbound.packet_id)


def _report(queue_id: int, items: dict[int, Item]) -> None:
    """Nobody is there any more who counts what was refused or dropped; say it here."""
    refused = sum(share.position == Refused.FULL for item in items.values() for share in item.shares)
    dropped = sum(len(share.dropped) for item in items.values() for share in item.shares)
    log.info(
        "QoS 2 messages of an interrupted publisher delivered",
        queue=queue_id,
        intents=len(items),
        refused=refused,
        dropped=dropped,
    )
