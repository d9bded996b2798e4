"""What two of the writer's threads do with a batch: queues and retained messages read, retained messages written. The third is `writing`'s.

Knows the ports and the record format; knows no plane and no reactor.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from iothub.base.errors import BackendError, IotHubError
from iothub.engine.message import Delivery
from iothub_services.queues.loading import deliveries_of
from iothub_services.queues.port import (
    Damaged,
    Page,
    QueueStore,
    StaleEpochError,
)
from iothub_services.retained.port import RetainedStore, RetainedWrite


class Call(NamedTuple):
    """A rare verb of the port, by name. Its position among the other operations is kept."""

    name: str
    args: tuple[object, ...]


class RetainedCall(NamedTuple):
    """The same for the retained store."""

    name: str
    args: tuple[object, ...]


class Read(NamedTuple):
    """One page of one queue."""

    queue_id: int
    epoch: int
    after: int
    records: int
    size_bytes: int


class RetainedPage(NamedTuple):
    """Some topics of a tenant that have a Retained Message."""

    tenant_id: int
    after: bytes
    topics: int


class LoadedPage(NamedTuple):
    """A decoded page. `damaged`: what was passed over, the record or its message."""

    records: list[Delivery]
    upto: int
    is_short: bool
    damaged: list[Damaged]


READING = frozenset(("read", "tails", "existing", "stats", "stats_of", "list_queues", "fetch", "load", "usage"))
"""The verbs that only read: they belong in the reading thread, and one that fails takes no other operation with it."""

ReadOp = Read | Call | RetainedCall | RetainedPage
RetainedOp = RetainedWrite | RetainedCall


class Reads:
    """The reading thread: each operation by itself, never in the way of a commit."""

    def __init__(self, queues: QueueStore, retained: RetainedStore) -> None:
        self._queues = queues
        self._retained = retained

    def __call__(self, ops: list[ReadOp]) -> list[object]:
        return [self._one(op) for op in ops]

    def _one(self, op: ReadOp) -> object:
        if isinstance(op, Call):
            return call_verb(self._queues, op)
        if isinstance(op, RetainedCall):
            return call_verb(self._retained, op)
        try:
            if isinstance(op, RetainedPage):
                return list(islice(self._retained.load(op.tenant_id, op.after), op.topics))
            page = self._queues.read(*op)
        except (IotHubError, StaleEpochError) as error:
            return error
        return load_page(page)


class RetainedWrites:
    """The writing thread of the retained store: a batch is one commit."""

    def __init__(self, store: RetainedStore) -> None:
        self._store = store

    def __call__(self, ops: list[RetainedOp]) -> list[object]:
        answers: list[object] = []
        with self._store.group():
            run: list[RetainedWrite] = []
            for op in ops:
                if isinstance(op, RetainedWrite):
                    run.append(op)
                    continue
                answers += self._store.put(run)
                run = []
                answers.append(call_verb(self._store, op))
            answers += self._store.put(run)
        return answers


def load_page(page: Page) -> LoadedPage:
    """Decode a page. A damaged message is passed over, and named."""
    damaged = list(page.damaged)
    records = deliveries_of(page.records, damaged)
    return LoadedPage(records, page.upto, page.is_short, damaged)


def call_verb(store: QueueStore | RetainedStore, call: Call | RetainedCall) -> object:
    """Do a rare verb; return its answer, or the exception that is one."""
    try:
        answer = getattr(store, call.name)(*call.args)
        return list(answer) if isinstance(answer, Iterator) else answer
    except BackendError as error:
        if call.name in READING:
            return error
        raise
    except (IotHubError, StaleEpochError) as error:
        return error
