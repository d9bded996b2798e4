"""Inbound QoS 2 of persistent publishers on HBase: the intent before the append, `routed` behind it, and what a crash left between.

Knows the order of the steps (intent, append, `routed`); the append itself is `append`'s.

Theory: every queue gets the message under the message id that the intent keeps, and remembers it, so repeating the append doubles nothing.
The hub that claims the publisher's queue finishes what was not routed; a damaged intent stays open, and the client's own repeat routes it.

Invariant: the intent, with all that is needed to finish it, is durable in the publisher's own queue before the first append; `routed` is
durable before PUBREC. In any other order a crash loses the message or stores it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from iothub.base import log as logging
from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records import keys
from iothub.records.queued import Body, Intent, Target, decode_intent, encode_intent
from iothub_services.damaged import OnDamage
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.append import Appending
from iothub_services.queues.hbase.bodies import Bodies
from iothub_services.queues.hbase.index import KnownQueue
from iothub_services.queues.hbase.moves import Reader, Readers
from iothub_services.queues.port import Appended, Inbound, Move, MoveKind, Refused
from iothub_services.queues.remote.shares import Item, Progress

log = logging.get(__name__)

_ID_BYTES = 16
_NEW, _OPEN, _ROUTED = range(3)
_NOTHING = Body(b"", 0)


class Publish(NamedTuple):
    """One message of a persistent publisher."""

    inbound: Inbound
    item: Item


class Inbounds:
    """Does the publisher's side of a batch."""

    def __init__(
        self,
        caller: Caller,
        table: bytes,
        readers: Readers,
        appending: Appending,
        bodies: Bodies,
        on_damaged_record: OnDamage,
    ) -> None:
        self._caller = caller
        self._table = table
        self._readers = readers
        self._appending = appending
        self._bodies = bodies
        self._on_damaged_record = on_damaged_record

    def route(self, publishes: Sequence[Publish]) -> None:
        """Do all three steps for the messages of persistent publishers. Raises BackendError: some may be done."""
        first: dict[Inbound, Item] = {}
        repeated: list[Publish] = []
        asked: dict[Reader, list[Publish]] = {}
        for publish in publishes:
            inbound, item = publish
            if first.setdefault(inbound, item) is not item:
                repeated.append(publish)
            elif item.answer is None and item.progress < Progress.INTENDED:
                asked.setdefault((inbound.queue_id, inbound.epoch), []).append(publish)
        is_well = False
        try:
            self._appending.put_bodies([item for _, item in publishes])
            if asked:
                self._ask(asked)
            self._appending.route(list(first.values()))
            is_well = self._close([Publish(*each) for each in first.items()])
        except BackendError as error:
            # An intent that is there will be finished: nobody may get the answer that nothing was written.
            error.is_written |= any(item.progress >= Progress.ASKED for _, item in publishes)
            raise
        finally:
            self._appending.settle(is_well=is_well)
        for inbound, item in repeated:  # only now: its PUBREC says that the first one is routed
            answer = first[inbound].answer
            is_stale = answer is not None and answer.is_stale
            item.refuse(Appended((), is_stale=True) if is_stale else Appended((), is_duplicate=True))

    def _close(self, publishes: Iterable[Publish]) -> bool:
        """What was appended is routed from now on: a repeated PUBLISH gets only its PUBREC.

        False: somebody else has claimed one of the publishers' queues, and may have found the intent open.
        """
        done = [each for each in publishes if each.item.progress == Progress.INTENDED]
        are_ours = self._readers.apply([_routed(inbound) for inbound, _ in done])
        for _, item in done:
            item.progress = Progress.ROUTED
        return all(are_ours)

    def finish(self, known: KnownQueue, epoch: int, intents: Sequence[tuple[int, bytes]]) -> list[int]:
        """Route what a publisher's queue says is not routed, (Packet Identifier, message id); return those that are now.

        They go in the order in which they came, which is that of message ids; Packet Identifiers begin anew [MQTT-4.6.0-5].

        Raises:
            BackendError: HBase cannot be reached, or refused; some may be routed.
        """
        intents = sorted(intents, key=itemgetter(1))
        rows = [keys.intent_row(known.key, packet_id) for packet_id, _ in intents]
        found = {row.key: row for row in self._caller.call(calls.get_rows(self._table, rows, (requests.INTENT,)))}
        items: dict[int, Item] = {}
        for (packet_id, message_id), row in zip(intents, rows, strict=True):
            kept = found[row].cells[requests.INTENT].value if row in found else b""
            try:
                items[packet_id] = self._appending.intended(message_id, decode_intent(kept))
            except CorruptRecordError as error:
                where = f"tenant {known.tenant_id}, QoS 2 message {packet_id} from the client of queue {known.queue_id}"
                self._on_damaged_record("queues", where, str(error))
        self._appending.route(list(items.values()))
        self._readers.apply([_routed(Inbound(known.queue_id, epoch, packet_id)) for packet_id in items])
        _report(known, items)
        return list(items)

    def _ask(self, asked: dict[Reader, list[Publish]]) -> None:
        """Send the intents and take the result of each."""
        moves = {reader: [move for each in asked[reader] for move in self._moves(each)] for reader in asked}
        items = [item for publishes in asked.values() for _, item in publishes]
        before = {id(item): item.progress for item in items}
        try:
            moved = self._readers.send_moves(moves)
        except BackendError as error:
            if error.is_written:
                for item in items:
                    item.progress = Progress.ASKED
            raise
        for reader, publishes in asked.items():
            answer = moved[reader]
            if answer is None:
                for _, item in publishes:
                    item.refuse(Appended((), is_stale=True))
                continue
            for (_, item), (result, kept) in zip(publishes, requests.intended(answer), strict=True):
                _take(item, result, kept, is_repeat=before[id(item)] == Progress.ASKED)

    def _moves(self, publish: Publish) -> list[bytes]:
        inbound, item = publish
        if len(item.message_id) != _ID_BYTES:
            item.message_id = self._bodies.new_id()
        move = requests.intent(inbound.packet_id, item.message_id, encode_intent(_intent(item)))
        return [move] if item.shares else [move, requests.move(_routed(inbound))]


def _intent(item: Item) -> Intent:
    targets = tuple([Target(each.queue_id, each.qos, each.flags, tuple(each.subscription_ids)) for each in item.shares])
    return Intent(item.expires_at_ms, targets, item.body if targets else _NOTHING)


def _take(item: Item, result: int, kept: bytes, *, is_repeat: bool) -> None:
    """Take what the publisher's queue says of an intent. `is_repeat`: one of before may have been ours, and its answer was lost."""
    is_ours = result == _NEW or (is_repeat and kept == item.message_id)
    if result == _ROUTED and not is_ours:
        item.refuse(Appended((), is_duplicate=True))
        return
    item.message_id = kept  # of an earlier attempt, perhaps: the queues may have it under that id
    item.is_settled_later = is_ours
    item.progress = Progress.INTENDED if item.shares else Progress.ROUTED


def _routed(inbound: Inbound) -> Move:
    return Move(MoveKind.RECORD_INBOUND, inbound.queue_id, inbound.epoch, inbound.packet_id)


def _report(known: KnownQueue, items: dict[int, Item]) -> None:
    """Nobody is there any more who counts what was refused or dropped; say it here."""
    refused = sum(share.position == Refused.FULL for item in items.values() for share in item.shares)
    dropped = sum(len(share.dropped) for item in items.values() for share in item.shares)
    log.info(
        "QoS 2 messages of an interrupted publisher delivered",
        queue=known.queue_id,
        intents=len(items),
        refused=refused,
        dropped=dropped,
    )
