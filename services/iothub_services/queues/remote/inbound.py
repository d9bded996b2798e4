"""Inbound QoS 2 of persistent publishers on a server: the intent before the append, `routed` behind it, and what a crash left between.

Knows the order of the steps (intent, append, `routed`), and what a publisher's queue may say of an intent; how it is asked is the driver's.

Theory: queues are changed one by one, so a crash may leave a message in some of its queues. Every queue gets the message under the message id
that the intent keeps, and remembers it, so repeating the append doubles nothing at QoS 2. The hub that claims the publisher's queue finishes
what was not routed; a damaged intent stays open, and the client's own repeat routes it.

Invariant: the intent, with all that is needed to finish it, is durable in the publisher's own queue before the first append; `routed` is
durable before PUBREC. In any other order a crash loses the message or stores it twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from operator import itemgetter
from typing import NamedTuple, Protocol

from iothub.base import log as logging
from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records.queued import Body, Intent, Target, decode_intent, encode_intent
from iothub_services.damaged import OnDamage
from iothub_services.queues.port import Appended, Inbound, Move, MoveKind, Refused
from iothub_services.queues.remote.rounds import Ahead
from iothub_services.queues.remote.shares import Item, Progress
from iothub_services.queues.remote.tenant import RemoteQueue

log = logging.get(__name__)

_ID_BYTES = 16
_NOTHING = Body(b"", 0)

Reader = tuple[int, int]
"""Queue id, epoch."""


class Kept(Enum):
    """What a publisher's queue had of an intent before it was asked."""

    NOTHING = auto()
    OPEN = auto()
    ROUTED = auto()


class Publish(NamedTuple):
    """One message of a persistent publisher."""

    inbound: Inbound
    item: Item


class Appending(Protocol):
    """What is needed of a driver's `Rounds`."""

    def route(self, items: Sequence[Item], ahead: Ahead | None = None) -> None: ...

    def intended(self, message_id: bytes, intent: Intent) -> Item:
        """Return the message of an intent that somebody else has left open. Raises BackendError."""


class Readers(Protocol):
    """What is needed of a driver's readers."""

    def apply(self, moves: Sequence[Move]) -> list[bool]: ...


class InboundRoutes:
    """Does the publisher's side of a batch."""

    def __init__(self, readers: Readers, appending: Appending, on_damaged_record: OnDamage) -> None:
        self._moves = readers
        self._routes = appending
        self._on_damaged_record = on_damaged_record

    def route(self, items: Sequence[Item], publishes: Sequence[Publish]) -> None:
        """Do all three steps for a batch, in its order; `publishes` are those of `items` that have a publisher.

        Raises:
            BackendError: Some may be done.
        """
        first: dict[Inbound, Item] = {}
        repeated = [each for each in publishes if first.setdefault(each.inbound, each.item) is not each.item]
        later = {id(item) for _, item in repeated}
        is_well = False
        try:
            self._intend(first)
            self._routes.route([item for item in items if id(item) not in later])
            is_well = self._close(first)
        except BackendError as error:
            # An intent that is there will be finished: nobody may get the answer that nothing was written.
            error.is_written |= any(item.progress >= Progress.ASKED for _, item in publishes)
            raise
        finally:
            self._on_end(is_well=is_well)
        for inbound, item in repeated:  # only now: its PUBREC says that the first one is routed
            answer = first[inbound].answer
            is_stale = answer is not None and answer.is_stale
            item.refuse(Appended((), is_stale=True) if is_stale else Appended((), is_duplicate=True))

    def finish(self, known: RemoteQueue, epoch: int, intents: Sequence[tuple[int, bytes]]) -> list[int]:
        """Route what a publisher's queue says is not routed, (Packet Identifier, message id); return those that are now.

        They go in the order in which they came, which is that of message ids; Packet Identifiers begin anew [MQTT-4.6.0-5].

        Raises:
            BackendError: The server cannot be reached, or refused; some may be routed.
        """
        queue_id, intents = known.queue_id, sorted(intents, key=itemgetter(1))
        items: dict[int, Item] = {}
        found = self._kept(known, [packet_id for packet_id, _ in intents])
        for (packet_id, message_id), kept in zip(intents, found, strict=True):
            try:
                items[packet_id] = self._routes.intended(message_id, decode_intent(kept))
            except CorruptRecordError as error:
                where = f"tenant {known.tenant_id}, QoS 2 message {packet_id} from the client of queue {queue_id}"
                self._on_damaged_record("queues", where, str(error))
        self._routes.route(list(items.values()))
        self._moves.apply([routed(Inbound(queue_id, epoch, packet_id)) for packet_id in items])
        _report(queue_id, items)
        return list(items)

    # --- of a driver

    def _ask(self, asked: Mapping[Reader, Sequence[Publish]]) -> None:
        """Make these intents durable, and hand what the publisher's queue says of each to `_take`, or `_refuse_stale`. Raises BackendError."""
        raise NotImplementedError

    def _kept(self, known: RemoteQueue, packet_ids: Sequence[int]) -> list[bytes]:
        """Return the intents of a publisher's queue as they are kept, b"" for one that is not there. Raises BackendError."""
        raise NotImplementedError

    def _new_id(self) -> bytes:
        """Return a message id that none had before, and that is above all others of this hub."""
        raise NotImplementedError

    def _on_routed(self, item: Item) -> None:
        """`routed` is durable, and nobody else has claimed the publisher's queue meanwhile."""

    def _on_end(self, *, is_well: bool) -> None:
        """The steps are done, or were left. `is_well`: all are routed, and nobody else may have found an intent of them open."""

    # --- for a driver

    def _intent_of(self, item: Item) -> bytes:
        """Return what is kept to finish a message, which gets its id here."""
        if len(item.message_id) != _ID_BYTES:
            item.message_id = self._new_id()
        targets = tuple(
            [Target(each.queue_id, each.qos, each.flags, tuple(each.subscription_ids)) for each in item.shares]
        )
        return encode_intent(Intent(item.expires_at_ms, targets, item.body if targets else _NOTHING))

    @staticmethod
    def _take(item: Item, kept: Kept, message_id: bytes) -> None:
        """Take what the publisher's queue says. Of an attempt whose answer was lost it has our own message id."""
        is_ours = kept is Kept.NOTHING or (item.progress == Progress.ASKED and message_id == item.message_id)
        if kept is Kept.ROUTED and not is_ours:
            item.refuse(Appended((), is_duplicate=True))
            return
        item.message_id = message_id  # of an earlier attempt, perhaps: the queues may have it under that id
        item.is_settled_later = is_ours
        item.progress = Progress.INTENDED if item.shares else Progress.ROUTED

    @staticmethod
    def _refuse_stale(publishes: Sequence[Publish]) -> None:
        """The publisher's queue has another reader by now, or is gone."""
        for _, item in publishes:
            item.refuse(Appended((), is_stale=True))

    @staticmethod
    def _mark_asked(publishes: Sequence[Publish], error: BackendError) -> None:
        """The intents may be there, whatever was in the way of the answer."""
        if error.is_written:
            for _, item in publishes:
                item.progress = Progress.ASKED

    # --- inside

    def _intend(self, first: Mapping[Inbound, Item]) -> None:
        """Make the intents durable of those whose intent may not be there."""
        asked: dict[Reader, list[Publish]] = {}
        for inbound, item in first.items():
            if item.answer is None and item.progress < Progress.INTENDED:
                asked.setdefault((inbound.queue_id, inbound.epoch), []).append(Publish(inbound, item))
        if asked:
            self._ask(asked)

    def _close(self, first: Mapping[Inbound, Item]) -> bool:
        """What was appended is routed from now on: a repeated PUBLISH gets only its PUBREC.

        False: somebody else has claimed one of the publishers' queues, and may have found the intent open.
        """
        done = [(inbound, item) for inbound, item in first.items() if item.progress == Progress.INTENDED]
        are_ours = self._moves.apply([routed(inbound) for inbound, _ in done])
        for (_, item), is_ours in zip(done, are_ours, strict=True):
            item.progress = Progress.ROUTED
            if is_ours:
                self._on_routed(item)
        return all(are_ours)


def routed(inbound: Inbound) -> Move:
    """Return the move by which a publisher's queue knows that a message is routed."""
    return Move(MoveKind.RECORD_INBOUND, inbound.queue_id, inbound.epoch, inbound.packet_id)


def _report(queue_id: int, items: Mapping[int, Item]) -> None:
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
