"""Inbound QoS 2 of persistent publishers on HBase: how intents are asked for, and where they lie.

Knows rows and moves of the coprocessor; the steps and their order are `remote.inbound`'s.

Invariant: a body that lies apart is durable before the intent that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub_services.damaged import OnDamage
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.append import Appending
from iothub_services.queues.hbase.bodies import Bodies
from iothub_services.queues.hbase.moves import Readers
from iothub_services.queues.remote.inbound import InboundRoutes, Kept, Publish, Reader, routed
from iothub_services.queues.remote.tenant import RemoteQueue

_NEW, _ROUTED = 0, 2  # as the coprocessor says it


class Inbounds(InboundRoutes):
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
        super().__init__(readers, appending, on_damaged_record)
        self._caller = caller
        self._table = table
        self._readers = readers
        self._appending = appending
        self._bodies = bodies

    def _ask(self, asked: Mapping[Reader, Sequence[Publish]]) -> None:
        """Bodies go first: an intent must not name one that may be lost."""
        together = [publish for publishes in asked.values() for publish in publishes]
        self._appending.put_bodies([item for _, item in together])
        try:
            moved = self._readers.send_moves(
                {reader: [move for each in asked[reader] for move in self._intents(each)] for reader in asked}
            )
        except BackendError as error:
            self._mark_asked(together, error)
            raise
        for reader, publishes in asked.items():
            answer = moved[reader]
            if answer is None:
                self._refuse_stale(publishes)
                continue
            for (_, item), (result, message_id) in zip(publishes, requests.intended(answer), strict=True):
                kept = Kept.NOTHING if result == _NEW else Kept.ROUTED if result == _ROUTED else Kept.OPEN
                self._take(item, kept, message_id)

    def _kept(self, known: RemoteQueue, packet_ids: Sequence[int]) -> list[bytes]:
        key = keys.queue_key(known.queue_id, known.tenant_id)
        rows = [keys.intent_row(key, packet_id) for packet_id in packet_ids]
        found = {row.key: row for row in self._caller.call(calls.get_rows(self._table, rows, (requests.INTENT,)))}
        return [found[row].cells[requests.INTENT].value if row in found else b"" for row in rows]

    def _new_id(self) -> bytes:
        return self._bodies.new_id()

    def _on_end(self, *, is_well: bool) -> None:
        self._appending.settle(is_well=is_well)

    def _intents(self, publish: Publish) -> list[bytes]:
        """Return the moves that make an intent; a message for nobody is routed with it."""
        inbound, item = publish
        kept = self._intent_of(item)
        move = requests.intent(inbound.packet_id, item.message_id, kept)
        return [move] if item.shares else [move, requests.move(routed(inbound))]
