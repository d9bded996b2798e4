"""The queue port over the store process: the driver of a worker, and the verbs that both sides know.

Knows no table: the store process has the driver of the file (`iothub_services.queues.sqlite`). Writing verbs belong to one thread; the others may
be called from any.

Theory: a verb is one request, and durable when it returns; `write` is a whole batch of the writer's thread. What the store process merges into
one commit are the requests of all workers. A batch whose answer was lost is asked for before anything else is written, so an append is done
once, whatever happened to the connection or to the store process (`iothub_services.store_process.connection`); what else comes again changes
nothing, but for a creation, which finds its own queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from iothub.base.clock import Clock
from iothub.base.errors import BackendError, ConflictError
from iothub_services.queues.port import (
    EARLIEST,
    Append,
    Appended,
    Claim,
    Damaged,
    Delivery,
    DueRecord,
    Expired,
    ExpiryMark,
    Inbound,
    JournalFigures,
    Move,
    MoveKind,
    Overflow,
    Page,
    Place,
    Purged,
    QueuedRecord,
    QueueLimits,
    QueueStats,
    QueueStore,
    Rebuilt,
    TenantUsage,
)
from iothub_services.store_process.batches import Batches, Keep
from iothub_services.store_process.connection import OnNotices, StoreConnection
from iothub_services.store_process.frames import (
    data,
    flag,
    many,
    maybe,
    nothing,
    number,
    one_of,
    pair,
    row,
    several,
    table,
    text,
)
from iothub_services.store_process.ports import Port, Session
from iothub_services.store_process.requests import Requests
from iothub_services.store_process.verbs import Verb

PORT = "queues"

_LIMITS = row(QueueLimits, number, number, one_of(Overflow))
_APPEND = row(
    Append,
    data,
    data,
    number,
    several(row(Delivery, number, number, number, several(number))),
    maybe(row(Inbound, number, number, number)),
)
_MOVE = row(Move, one_of(MoveKind), number, number, number)
_APPENDED = row(Appended, several(number), flag, several(row(pair, number, number)), flag, several(text))
_RECORD = row(QueuedRecord, number, number, number, several(number), number, data)
_PAGE = row(Page, many(_RECORD), number, flag, several(row(Damaged, number, text)))
_CLAIM = row(Claim, number, number, number, number, several(number), several(number))
_STATS = row(QueueStats, number, number, number, number, number, number, number, _LIMITS)
_MARK = row(ExpiryMark, number, number, number)
_DUE = row(DueRecord, number, number, number)

VERBS = {
    "write": Verb((many(_MOVE), many(_APPEND)), row(pair, many(flag), many(_APPENDED)), is_write=True, is_kept=True),
    "create": Verb((number, number, _LIMITS, number), nothing, is_write=True),
    "claim": Verb((number, data), _CLAIM, is_write=True),
    "set_limits": Verb((many(row(pair, number, _LIMITS)),), nothing, is_write=True),
    "set_tenant_limits": Verb((number, number, number), nothing, is_write=True),
    "purge": Verb((number, number), row(Purged, number, number), is_write=True),
    "drop": Verb((number,), number, is_write=True),
    "drop_tenant": Verb((number,), number, is_write=True),
    "expire": Verb((number, number, _MARK), row(Expired, several(_DUE), several(_DUE), maybe(_MARK)), is_write=True),
    "expire_unsent": Verb((number, many(_DUE)), several(_DUE), is_write=True),
    "rebuild": Verb(
        (many(row(Place, number, number, number)), number), row(Rebuilt, number, number, number), is_write=True
    ),
    "needs_rebuild": Verb((), flag, is_write=True),
    "read": Verb((number, number, number, number, number), _PAGE),
    "tails": Verb((many(number),), table(number, number)),
    "existing": Verb((many(number),), many(number)),
    "stats": Verb((number,), _STATS),
    "stats_of": Verb((many(number),), table(number, _STATS)),
    "list_queues": Verb((number,), many(_STATS)),
}
_FIGURES = row(JournalFigures, number, number, number, number)
_NOTES = row(
    pair, number, many(row(pair, number, number, number)), _FIGURES
)  # up to which change; tenant, messages, bytes; the journal


# --- in the store process


class KeptQueues(QueueStore, Protocol):
    """What the store process needs of the queues' file."""

    needs_rebuild: bool

    @property
    def journal_figures(self) -> JournalFigures: ...

    def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt: ...

    def probe(self) -> None: ...


class QueuePort(Port):
    """The queues, and after each answer what tenants have stored: a connection hears of each tenant whose sums have changed."""

    def __init__(self, queues: KeptQueues, usage: UsageChanges, clock: Clock, requests: Requests) -> None:
        """`usage`: hears of the sums of these queues."""
        self._queues = queues
        self._usage = usage
        calls: dict[str, Callable[..., object]] = {
            "write": self._write,
            "rebuild": self._rebuild,
            "needs_rebuild": lambda: queues.needs_rebuild,
        }
        super().__init__(PORT, VERBS, queues, clock, calls=calls, requests=requests)

    def notes(self, session: Session) -> object:
        session.seen, changes = self._usage.since(session.seen)
        figures = self._queues.journal_figures
        if not changes and session.reusable_bytes == figures.reusable_bytes:
            return None
        session.reusable_bytes = figures.reusable_bytes
        return session.seen, changes, figures

    def _write(self, moves: list[Move], appends: list[Append]) -> tuple[list[bool], list[Appended]]:
        """Moves first: acknowledgements make room, and none of them concerns an append of the same batch."""
        moved = self._queues.apply(moves) if moves else []
        return moved, self._queues.append(appends) if appends else []

    def _rebuild(self, places: list[Place], now_us: int) -> Rebuilt:
        """Once: of workers that start side by side, the first one rebuilds for all."""
        return self._queues.rebuild(places, now_us) if self._queues.needs_rebuild else Rebuilt()


class UsageChanges:
    """The sums of tenants, in the order in which they changed. Any thread.

    Invariant: `_last` has each tenant once, the one that changed last at the end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._change = 0
        self._last: dict[int, tuple[int, TenantUsage]] = {}

    def changed(self, tenant_id: int, usage: TenantUsage) -> None:
        with self._lock:
            self._change += 1
            self._last.pop(tenant_id, None)
            self._last[tenant_id] = self._change, usage

    def since(self, seen: int) -> tuple[int, list[tuple[int, int, int]]]:
        """Return the last change, and what tenants have that changed after `seen`. Takes as long as there are such tenants."""
        changes = []
        with self._lock:
            for tenant_id, (change, usage) in reversed(self._last.items()):
                if change <= seen:
                    break
                changes.append((tenant_id, *usage))
            return self._change, changes


# --- in a worker


class RemoteQueues:
    """Fulfils `QueueStore`.

    Args:
        on_notices: Gets the alarms of a store process that is new to this worker, in the thread that finds it.
        connection: Makes the connections; tests have others.

    Invariants: the limits of tenants that were said are said again to a store process that does not know them, before anything else is asked.
    Sums of tenants are those of one store process.
    """

    def __init__(
        self,
        path: Path,
        on_notices: OnNotices | None = None,
        *,
        connection: Callable[..., StoreConnection] = StoreConnection,
    ) -> None:
        self._usage: dict[int, tuple[int, TenantUsage]] = {}
        self._limits: dict[int, tuple[int, int]] = {}
        self.journal_figures = JournalFigures()
        self._writes = connection(
            path, PORT, VERBS, is_writer=True, on_notes=self._noted, on_notices=on_notices, on_begin=self._begun
        )
        self._reads = connection(path, PORT, VERBS, on_notes=self._noted)
        self._appends: Batches[Append, Appended] = Batches(self._writes, lambda op: len(op.body))
        self._created: set[int] = set()  # by the group that runs
        self._created_before: set[int] = set()  # perhaps, by one that failed and comes again

    def close(self) -> None:
        self._writes.close()
        self._reads.close()

    @contextmanager
    def group(self) -> Iterator[None]:
        """Let a failure inside be repeated by doing everything again, with the same objects: what was done is not done twice.

        There is no commit around several verbs: each is durable when it returns.
        """
        self._created.clear()
        with self._appends.group():
            try:
                yield
            except BaseException:
                self._created_before |= self._created
                raise
            self._created_before.clear()

    def probe(self) -> None:
        """Commit something small. Raises BackendError: the store process is away, or its file takes no writes."""
        self._writes.probe()

    def idle(self) -> bool:
        """Forget what was given up: who repeats a batch does nothing else before it is over, and is idle now. There is never more to do."""
        self._appends.clear()
        self._created_before.clear()
        return False

    # --- writers

    def write(self, moves: list[Move], appends: list[Append]) -> tuple[list[bool], list[Appended]]:
        """Do both in one request. A move that was done may be done again."""
        moved: list[bool] = []

        def ask(new: list[Append], keep: Keep[Appended]) -> list[Appended]:
            if moves or new:
                done, appended = self._writes.write("write", moves, new, keep=lambda answer: keep(answer[1]))
                moved.extend(done)
                return list(appended)
            return []

        appended = self._appends.do(appends, ask)
        return moved, appended

    def append(self, batch: list[Append]) -> list[Appended]:
        return self.write([], batch)[1]

    def apply(self, moves: list[Move]) -> list[bool]:
        return self.write(moves, [])[0]

    # --- owners and operators

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        try:
            self._writes.write("create", tenant_id, queue_id, limits, first_epoch)
        except BackendError as error:
            if error.is_written:
                self._created_before.add(queue_id)
            raise
        except ConflictError:
            if queue_id not in self._created_before or self.stats(queue_id).tenant_id != tenant_id:
                raise
        self._created.add(queue_id)

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        claim: Claim = self._writes.write("claim", queue_id, owner)
        return claim

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        self._writes.write("set_limits", changes)

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        """Bound the sum over a tenant's queues, for all workers, as long as this worker lives."""
        self._limits[tenant_id] = messages, size_bytes
        self._writes.write("set_tenant_limits", tenant_id, messages, size_bytes)

    def purge(self, queue_id: int, upto: int = 0) -> Purged:
        purged: Purged = self._writes.write("purge", queue_id, upto)
        return purged

    def drop(self, queue_id: int) -> int:
        return int(self._writes.write("drop", queue_id))

    def drop_tenant(self, tenant_id: int) -> int:
        self._limits.pop(tenant_id, None)
        return int(self._writes.write("drop_tenant", tenant_id))

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        expired: Expired = self._writes.write("expire", now_ms, count, after)
        return expired

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        removed: tuple[DueRecord, ...] = self._writes.write("expire_unsent", now_ms, records)
        return removed

    @property
    def needs_rebuild(self) -> bool:
        """Whether queues were lost with a damaged page, and nobody has rebuilt them yet. Blocking. Raises BackendError."""
        return bool(self._writes.write("needs_rebuild"))

    def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt:
        rebuilt: Rebuilt = self._writes.write("rebuild", places, now_us)
        return rebuilt

    # --- readers

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        page: Page = self._reads.read("read", queue_id, epoch, after, count, size_bytes)
        return page

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        tails: dict[int, int] = self._reads.read("tails", queue_ids)
        return tails

    def existing(self, queue_ids: Sequence[int]) -> set[int]:
        return set(self._reads.read("existing", queue_ids))

    def stats(self, queue_id: int) -> QueueStats:
        stats: QueueStats = self._reads.read("stats", queue_id)
        return stats

    def stats_of(self, queue_ids: Sequence[int]) -> dict[int, QueueStats]:
        stats: dict[int, QueueStats] = self._reads.read("stats_of", queue_ids)
        return stats

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        queues: list[QueueStats] = self._reads.read("list_queues", tenant_id)
        return queues

    def tenant_usage(self, tenant_id: int) -> TenantUsage:
        """Return what the store process said last, with its answers."""
        return self._usage.get(tenant_id, (0, TenantUsage(0, 0)))[1]

    # --- what the store process says besides

    def _noted(self, notes: object) -> None:
        """Both connections hear of each change, in any order: the later one counts."""
        fields: tuple[Any, ...] = _NOTES(notes)
        change, changes, self.journal_figures = fields
        for tenant_id, messages, size_bytes in changes:
            if change >= self._usage.get(tenant_id, (0,))[0]:
                self._usage[tenant_id] = change, TenantUsage(messages, size_bytes)

    def _begun(self, connection: StoreConnection) -> None:
        """A store process has begun that knows nothing of this worker. Raises BackendError."""
        self._usage.clear()
        for tenant_id, (messages, size_bytes) in list(self._limits.items()):
            connection.write("set_tenant_limits", tenant_id, messages, size_bytes)
