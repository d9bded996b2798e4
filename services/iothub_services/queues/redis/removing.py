"""Queues in Redis that are emptied, or go.

Knows keys and scripts; knows no record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from iothub_services.queues.port import Purged
from iothub_services.queues.redis.index import KnownQueue, QueueIndex, unknown
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.scripts import DROP, PURGE
from iothub_services.queues.redis.sending import Sender, require
from iothub_services.redis.calls import Reply, command, script_call

PURGED_AT_ONCE = 1_000  # records: other queues wait for each call

_GONE = -1


class Removing:
    """In the writing thread."""

    def __init__(self, index: QueueIndex, sender: Sender, names: Names) -> None:
        self._index = index
        self._sender = sender
        self._names = names

    def purge(self, known: KnownQueue, upto: int = 0) -> Purged:
        """Drop some of what is stored up to a position, 0: now. Raises NotFoundError; BackendError: some may be gone."""
        keys = self._names.keys(known.queue_id)
        if not upto:
            tail = self._sender.write_one(command("HGET", self._names.meta(known.queue_id), "tail"), known.queue_id)
            upto = int(cast("bytes", tail or b"0"))
        answer = self._sender.write_one(script_call(PURGE, keys, upto, PURGED_AT_ONCE), known.queue_id)
        if not isinstance(answer, list):
            self._index.forget(known.queue_id)
            raise unknown(known.queue_id)
        count, messages, size_bytes, is_more = cast("list[int | bytes]", answer)
        known.holds(int(messages), int(size_bytes))
        return Purged(int(count), upto if is_more else 0)

    def drop(self, queue_id: int) -> int:
        """Remove a queue and return how many records it had. Raises BackendError: it may be gone."""
        self._index.find((queue_id,))
        tenant_id = self._index.tenant_of(queue_id)
        return 0 if tenant_id is None else self._drop([(tenant_id, queue_id)])[1]

    def drop_tenant(self, tenant_id: int) -> int:
        """Remove all queues of a tenant and return how many there were. Raises BackendError: some may be gone."""
        return self._drop([(tenant_id, queue_id) for queue_id in self._index.listed(tenant_id)])[0]

    def _drop(self, queues: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return how many queues were there, and how many records they had."""
        calls = [script_call(DROP, self._names.keys(queue_id)) for _, queue_id in queues]
        answers: list[Reply] = require(self._sender.write(calls))
        had = [each for each in cast("list[int]", answers) if each != _GONE]
        for _, queue_id in queues:
            self._index.forget(queue_id)
            self._sender.damage.dropped(queue_id)
        self._index.remove_names(queues)
        return len(had), sum(had)
