"""Inbound QoS 2 of persistent publishers in Redis: how intents are asked for, and where they lie.

Knows the script of intents and what it answers; the steps and their order are `remote.inbound`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub_services.damaged import OnDamage
from iothub_services.queues.redis.append import Appending
from iothub_services.queues.redis.moves import Readers
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.reader_scripts import INTEND
from iothub_services.queues.redis.sending import Sender
from iothub_services.queues.remote.inbound import InboundRoutes, Kept, Publish, Reader
from iothub_services.queues.remote.shares import Item
from iothub_services.queues.remote.tenant import RemoteQueue
from iothub_services.redis.calls import Argument, Reply, command

_INTENT_AT = 17  # in what is kept: its state, message id (16)
_NO_INTENT = b""


class Inbounds(InboundRoutes):
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
        super().__init__(readers, appending, on_damaged_record)
        self._sender = sender
        self._names = names
        self._readers = readers
        self._appending = appending
        self._clock = clock
        self._writer = writer.to_bytes(8, "big")
        self._last_us = 0

    def _ask(self, asked: Mapping[Reader, Sequence[Publish]]) -> None:
        calls = []
        for (queue_id, epoch), publishes in asked.items():
            arguments = [argument for publish in publishes for argument in self._arguments(publish)]
            calls.append(self._readers.call(INTEND, queue_id, epoch, *arguments))
        errors = []
        for ((queue_id, _), publishes), answer in zip(asked.items(), self._sender.write(calls), strict=True):
            outcome = self._sender.of_queue(queue_id, answer)
            if isinstance(outcome, BackendError):
                errors.append(outcome)
                self._mark_asked(publishes, outcome)
            else:
                self._take_all(publishes, outcome)
        if errors:
            raise min(errors, key=lambda error: error.retryable)

    def _kept(self, known: RemoteQueue, packet_ids: Sequence[int]) -> list[bytes]:
        found = self._sender.read_one(command("HMGET", self._names.inbound(known.queue_id), *packet_ids))
        return [(kept or b"")[_INTENT_AT:] for kept in cast("list[bytes | None]", found)]

    def _new_id(self) -> bytes:
        """64-bit clock in microseconds, writer."""
        self._last_us = max(int(self._clock.wall() * 1_000_000), self._last_us + 1)
        return self._last_us.to_bytes(8, "big") + self._writer

    def _on_routed(self, item: Item) -> None:
        self._appending.settle(item)

    def _arguments(self, publish: Publish) -> tuple[Argument, ...]:
        inbound, item = publish
        intent = self._intent_of(item)
        return inbound.packet_id, item.message_id, int(not item.shares), intent if item.shares else _NO_INTENT

    def _take_all(self, publishes: Sequence[Publish], outcome: Reply) -> None:
        if not isinstance(outcome, list):
            self._refuse_stale(publishes)
            return
        for (_, item), kept in zip(publishes, cast("list[bytes]", outcome), strict=True):
            if kept == b"n":
                self._take(item, Kept.NOTHING, item.message_id)
            else:
                self._take(item, Kept.ROUTED if kept[:1] == b"r" else Kept.OPEN, kept[1:])
